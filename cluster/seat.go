// A seat executes the lifecycle of one role: events in under its lock, outputs carried out.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// seat is one role in this process. Its lock is held for pure steps, atomics and
// trace lines, never across a proposal.
type seat struct {
	service *Service
	role    fsm.Role

	mu         sync.Mutex
	state      lifecycle
	cell       *cell // of the newest grant minted here
	stop       deadline
	retry      deadline
	claim      claim
	unanswered int // proposals under way
	closed     bool
}

// deadline is a timer of the lifecycle, fired by the Service's loop.
type deadline struct {
	epoch fsm.Epoch
	at    time.Time
}

func newSeat(s *Service, role fsm.Role, runnable []fsm.Role) *seat {
	seat := &seat{service: s, role: role}
	if !slices.Contains(runnable, role) {
		seat.state.declined = debt{debtRelease, ErrNotRunnable.Code, ErrNotRunnable.Message}
	}
	return seat
}

// feed runs one event.
func (s *seat) feed(e event) { s.handle(e, nil, nil) }

// lost is called by a guard: its cell is revoked when lost returns, at the latest.
func (s *seat) lost(c *cell, why error) {
	kind := evUnknown
	switch {
	case errors.Is(why, ErrUnconfirmed):
		kind = evUnconfirmed
	case KindOf(why) == Fenced:
		kind = evFenced
	}
	s.handle(event{kind: kind, epoch: c.epoch}, c, why)
}

// handle runs one event that came from the guard of a cell, or from elsewhere
// (nil), and tells whoever must know.
func (s *seat) handle(e event, from *cell, why error) {
	exit, moved := s.advance(e, from, why)
	if moved {
		s.service.hints.Notify()
	}
	signal(s.service.quiet)
	if exit != "" {
		s.service.log.Error(exit, "role", s.role, "code", ErrTreeHung.Code)
		s.service.exit(exitTreeHung, exit)
	}
}

// advance steps the lifecycle. moved tells that another tree is desired, exit
// that the process must end and why.
func (s *seat) advance(e event, from *cell, why error) (exit string, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || from != nil && from != s.cell {
		return "", false
	}
	before := s.state.wanted()
	next, out := step(s.state, e)
	s.state = next
	for _, o := range out {
		if o.kind == outExit {
			exit = fmt.Sprintf("%s epoch %d was revoked, but its work did not end in %s", s.role, o.epoch, s.service.bound)
			s.trace(trace.Exit, o.epoch, exit)
			continue
		}
		s.play(o, e, why)
	}
	return exit, next.wanted() != before
}

// play carries out one output. why is what a revoked guard's context tells; nil
// when no guard brought the event.
func (s *seat) play(o output, e event, why error) {
	switch o.kind {
	case outMint:
		s.mint()
	case outFence:
		s.cell.state.Store(int32(GuardFenced))
		s.trace(trace.Fenced, o.epoch, "")
	case outActivate:
		s.cell.state.Store(int32(GuardActive))
		s.trace(trace.Active, o.epoch, "")
	case outRevoke:
		if why == nil {
			why = o.cause.err(s.role, o.epoch, e)
		}
		s.revoke(o.cause, why)
	case outPoison:
		// Desired follows the state, and the hint of handle makes the actor system look.
	case outArmStop:
		s.stop = deadline{o.epoch, s.service.now().Add(s.service.bound)}
		signal(s.service.kick)
	case outSpent:
		s.trace(trace.Spent, o.epoch, "")
	case outPropose:
		s.propose(o.epoch, o.debt)
	case outArmRetry:
		s.retry = deadline{o.epoch, s.service.now().Add(s.claim.backoff())}
		signal(s.service.kick)
	}
}

func (s *seat) mint() {
	g := s.state.tree
	c := &cell{
		role: s.role, epoch: g.epoch, generation: g.generation,
		node: s.service.self.Node, incarnation: s.service.self.Incarnation,
		confirmed: s.service.backend.Confirmed, now: s.service.now,
		lost: s.lost, refused: s.refused,
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.state.Store(int32(GuardGranted))
	c.valid.Store(true)
	s.cell = c
	s.service.log.Info("role granted", "role", s.role, "epoch", g.epoch)
	s.trace(trace.Grant, g.epoch, "")
}

// revoke is the stop order of §294 on the cell that every copy of the guard
// shares. The lines are written afterwards, so that no disk delays a revocation.
func (s *seat) revoke(c cause, why error) {
	cell := s.cell
	cell.state.Store(int32(GuardRevoked))
	inactive := s.service.now()
	cell.cancel(why)
	cancelled := s.service.now()
	cell.valid.Store(false)
	invalidated := s.service.now()

	s.traceAt(inactive, trace.Inactive, cell.epoch, c.String())
	s.traceAt(cancelled, trace.Cancel, cell.epoch, c.String())
	s.traceAt(invalidated, trace.Invalidate, cell.epoch, c.String())
	s.service.log.Info("role revoked", "role", s.role, "epoch", cell.epoch, "cause", c, "err", why)
}

func (s *seat) refused(c *cell, err error) { s.trace(trace.CheckRefused, c.epoch, err.Error()) }

// fire runs the deadlines that have passed and returns the time to the next one.
func (s *seat) fire(now time.Time) time.Duration {
	for _, d := range []struct {
		timer *deadline
		kind  eventKind
	}{{&s.stop, evOverdue}, {&s.retry, evRetry}} {
		s.mu.Lock()
		due := *d.timer
		passed := due.epoch != 0 && !now.Before(due.at)
		if passed {
			*d.timer = deadline{}
		}
		s.mu.Unlock()
		if passed {
			s.feed(event{kind: d.kind, epoch: due.epoch})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Duration(math.MaxInt64)
	for _, d := range []deadline{s.stop, s.retry} {
		if d.epoch != 0 {
			next = min(next, max(d.at.Sub(now), 0))
		}
	}
	return next
}

func (s *seat) acquire() (RoleGuard, error) {
	s.mu.Lock()
	live, g := s.state.live(), RoleGuard{s.cell}
	s.mu.Unlock()
	if !live {
		return RoleGuard{}, ErrNotOwner.Wrap(nil, "the committed view does not give %s to this process, or its epoch is spent", s.role)
	}
	if err := g.CheckGranted(); err != nil {
		return RoleGuard{}, err
	}
	return g, nil
}

func (s *seat) desired() fsm.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := s.state.wanted()
	if s.closed || epoch == 0 {
		return 0
	}
	s.state, _ = step(s.state, event{kind: evTaken, epoch: epoch}) // has no output
	return epoch
}

func (s *seat) status() (RoleStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := RoleStatus{Role: s.role}
	switch {
	case s.state.live():
		st.Epoch, st.State = s.state.tree.epoch, s.state.phase
	case s.state.spent():
		st.Epoch, st.State = s.state.view.epoch, GuardRevoked
	case s.state.view.ours: // waits for a confirmation, or for the end of the tree before
		st.Epoch, st.State = s.state.view.epoch, GuardNone
	case s.state.tree.epoch != 0:
		st.Epoch, st.State = s.state.tree.epoch, GuardRevoked
	default:
		return st, false
	}
	return st, true
}

// busy says what keeps the seat from rest.
func (s *seat) busy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state.tree.epoch != 0:
		return fmt.Errorf("the work of %s epoch %d has not ended", s.role, s.state.tree.epoch)
	case s.state.spent():
		return fmt.Errorf("%s epoch %d is not released", s.role, s.state.view.epoch)
	case s.unanswered > 0:
		return fmt.Errorf("a proposal about %s is unanswered", s.role)
	}
	return nil
}

// close makes every later event void.
func (s *seat) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *seat) trace(kind trace.Kind, epoch fsm.Epoch, detail string) {
	s.traceAt(s.service.now(), kind, epoch, detail)
}

func (s *seat) traceAt(at time.Time, kind trace.Kind, epoch fsm.Epoch, detail string) {
	s.service.tracer.Trace(trace.Event{
		Mono: trace.Mono(at), Node: s.service.self.Node, Incarnation: s.service.self.Incarnation,
		Kind: kind, Role: s.role, Epoch: epoch, Detail: detail,
	})
}
