// Service: it alone mints and revokes guards, by executing the role lifecycle (§304, §310).

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// Intervals of the Service.
const (
	// reloadInterval bounds how late the Service sees a view whose hint was lost.
	// A role given away under such a view is fenced all the same.
	reloadInterval = 500 * time.Millisecond
	// unconfirmedPoll is how often it looks for a new confirmation while it has
	// none and a role here waits for it.
	unconfirmedPoll = 20 * time.Millisecond
	// defaultStopBound is how long a revoked tree may take to end.
	defaultStopBound = 10 * time.Second
	// exitTreeHung is the exit code of a process that cannot end its own work (EX_SOFTWARE).
	exitTreeHung = 70
)

// ServiceConfig is everything the Service uses of the outside.
type ServiceConfig struct {
	Backend Backend
	Tracer  trace.Tracer     // nil: nothing is traced
	Logger  *slog.Logger     // nil: nothing is logged; it must not wait: it is called under locks
	Now     func() time.Time // nil: time.Now; must carry a monotonic reading
	// Exit ends the process after a tree did not end within StopBound. It is
	// called once for each such tree and must not wait for the Service.
	Exit      func(code int, reason string)
	Roles     []fsm.Role    // the roles this process runs; grants of others are released
	StopBound time.Duration // zero: 10 s
}

// Service is the coordination service of one process. All methods are safe for
// concurrent use.
type Service struct {
	backend Backend
	self    Identity
	tracer  trace.Tracer
	log     *slog.Logger
	now     func() time.Time
	exit    func(code int, reason string)
	bound   time.Duration

	seats []*seat // one for each role, in role order
	hints Hints
	kick  chan struct{} // wakes the loop: a deadline was set

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // the loop and every proposal
	quiet  chan struct{}  // a seat may have come to rest; capacity 1

	starting, closing sync.Once
	closed            error // of the first Close
}

var _ Trees = (*Service)(nil)

// NewService makes a Service. Nothing runs before Start.
func NewService(cfg ServiceConfig) *Service {
	s := &Service{
		backend: cfg.Backend, self: cfg.Backend.Self(),
		tracer: cfg.Tracer, log: cfg.Logger, now: cfg.Now, exit: cfg.Exit, bound: cfg.StopBound,
		kick: make(chan struct{}, 1), quiet: make(chan struct{}, 1),
	}
	if s.tracer == nil {
		s.tracer = trace.Discard
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.exit == nil {
		s.exit = func(int, string) {}
	}
	if s.bound == 0 {
		s.bound = defaultStopBound
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, role := range fsm.Roles() {
		s.seats = append(s.seats, newSeat(s, role, cfg.Roles))
	}
	return s
}

// Start begins to follow the committed views.
func (s *Service) Start() {
	s.starting.Do(func() { s.work.Go(s.run) })
}

// Close revokes every guard before it waits, gives the roles up, and returns
// when all trees have ended and all roles are released. When ctx ends first it
// returns an error that names what is left; the goroutines have ended either way.
func (s *Service) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closed = s.close(ctx) })
	return s.closed
}

func (s *Service) close(ctx context.Context) error {
	for _, seat := range s.seats {
		seat.feed(event{kind: evDecline, code: ErrClosing.Code, reason: ErrClosing.Message})
	}
	s.Start() // proposals are retried by the loop
	var left error
	for left = s.busy(); left != nil && ctx.Err() == nil; left = s.busy() {
		select {
		case <-s.quiet:
		case <-ctx.Done():
		}
	}
	for _, seat := range s.seats {
		seat.close()
	}
	s.cancel()
	s.work.Wait()
	if left != nil {
		return fmt.Errorf("close the coordination service: %w: %w", left, ctx.Err())
	}
	return nil
}

// busy says which roles are not at rest.
func (s *Service) busy() error {
	var left []error
	for _, seat := range s.seats {
		left = append(left, seat.busy())
	}
	return errors.Join(left...)
}

// run is the Service's own goroutine: it reads confirmations and views, and fires deadlines.
func (s *Service) run() {
	changed, stop := s.backend.Changes()
	defer stop()
	var seen seenView
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-s.kick:
		case <-timer.C:
		}
		timer.Reset(s.refresh(&seen))
	}
}

// seenView is the position of the newest view that was acted on.
type seenView struct {
	generation fsm.Generation
	index      uint64
}

// newer reports whether v is not older than what was seen, and notes it.
func (p *seenView) newer(v View) bool {
	if v.Generation < p.generation || v.Generation == p.generation && v.Index < p.index {
		return false
	}
	p.generation, p.index = v.Generation, v.Index
	return true
}

// refresh acts on what is true now and returns how long nothing can change by itself.
func (s *Service) refresh(seen *seenView) time.Duration {
	// The confirmation is read before the view: so the view is at least as new
	// as what was confirmed. An expired one revokes before anything else happens.
	now, confirmed := s.now(), s.backend.Confirmed()
	age := now.Sub(confirmed)
	if age > ConfirmationBound && !mutant.Planted(mutant.GuardOutlivesLease) {
		s.feedAll(event{kind: evUnconfirmed})
	}
	if v := s.backend.View(); seen.newer(v) {
		for _, seat := range s.seats {
			seat.feed(event{kind: evView, grant: s.granted(v, seat.role)})
		}
	}
	if age <= ConfirmationBound {
		s.feedAll(event{kind: evConfirmed})
	}
	next := reloadInterval
	for _, seat := range s.seats {
		next = min(next, seat.fire(now))
	}
	switch {
	case len(s.Status()) == 0: // no role here lives by confirmations; a grant comes with a hint
	case age > ConfirmationBound:
		next = min(next, unconfirmedPoll)
	default:
		next = min(next, ConfirmationBound-age+1)
	}
	return next
}

func (s *Service) feedAll(e event) {
	for _, seat := range s.seats {
		seat.feed(e)
	}
}

func (s *Service) granted(v View, role fsm.Role) grant {
	g := v.Role(role)
	return grant{epoch: g.Epoch, generation: v.Generation, ours: g.HeldBy(s.self.Node, s.self.Incarnation)}
}

func (s *Service) seat(role fsm.Role) *seat {
	for _, seat := range s.seats {
		if seat.role == role {
			return seat
		}
	}
	return nil
}

// signal leaves one value in a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// AcquireRole returns the guard of an already committed assignment to this
// process (§311). It never proposes and never waits.
func (s *Service) AcquireRole(ctx context.Context, role fsm.Role) (RoleGuard, error) {
	if err := ctx.Err(); err != nil {
		return RoleGuard{}, fmt.Errorf("acquire %s: %w", role, err)
	}
	seat := s.seat(role)
	if seat == nil {
		return RoleGuard{}, ErrNotOwner.Wrap(nil, "%s is no role", role)
	}
	return seat.acquire()
}

// CurrentView returns the cached committed view with its freshness marker.
func (s *Service) CurrentView(ctx context.Context) (View, error) {
	if err := ctx.Err(); err != nil {
		return View{}, fmt.Errorf("current view: %w", err)
	}
	return s.backend.View(), nil
}

// Desired returns the tree that should exist now; see Trees.
func (s *Service) Desired(role fsm.Role) Tree {
	if seat := s.seat(role); seat != nil {
		return Tree{Role: role, Epoch: seat.desired()}
	}
	return Tree{Role: role}
}

// Changes hints that some Desired changed; coalescing, may be lost.
func (s *Service) Changes() (hint <-chan struct{}, stop func()) { return s.hints.Subscribe() }

// Report tells what happened to the tree of an epoch. Reports of other epochs are ignored.
func (s *Service) Report(role fsm.Role, epoch fsm.Epoch, ev TreeEvent, code, reason string) {
	kinds := map[TreeEvent]eventKind{TreeFenced: evRaised, TreeActive: evActive, TreeFailed: evFailed, TreeEnded: evEnded}
	kind, known := kinds[ev]
	if seat := s.seat(role); known && seat != nil {
		seat.feed(event{kind: kind, epoch: epoch, code: code, reason: reason})
	}
}

// Status lists the roles that concern this process, for its health report.
func (s *Service) Status() []RoleStatus {
	var all []RoleStatus
	for _, seat := range s.seats {
		if st, ok := seat.status(); ok {
			all = append(all, st)
		}
	}
	return all
}
