// Sessions: a daemon's side of the agent family. It holds the links of the agents that chose this daemon.

package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
)

// Database is what the job plane needs of roles/store for everything that no
// fence protects: one batch is one implicit transaction and one round trip.
// What its callbacks read counts only after Batch has returned nil.
type Database interface {
	Batch(ctx context.Context, fill func(*pgx.Batch)) error
}

// SessionsConfig is everything Sessions use of the outside.
type SessionsConfig struct {
	Store Database
	Node  string // this daemon's node id
	Wake  func() // called after agents became free: there may be something to lease; may be nil
	// Transfers serve the agents' transfer streams; nil refuses them for now.
	Transfers TransferServer
	Timing    Timing
	Logger    *slog.Logger
}

// Sessions serve the agents that linked to this daemon. Leases are read from and
// written to the database only, so that any other daemon can go on with them.
type Sessions struct {
	cfg   SessionsConfig
	log   *slog.Logger
	wake  chan struct{}
	desk  *desk
	meter *meter
	doors doors // one hello of an agent at a time, so that live and the database agree on its newest link

	mu    sync.Mutex
	live  map[string]*session // by agent id
	ended map[string][]string // by agent id: links whose end the database does not know yet, at most maxEnded
}

// NewSessions makes the daemon's side. Run it, and Serve every link.
func NewSessions(cfg SessionsConfig) *Sessions {
	cfg.Timing = cfg.Timing.WithDefaults()
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sessions{cfg: cfg, log: cfg.Logger, wake: make(chan struct{}, 1), desk: newDesk(), meter: newMeter(), live: map[string]*session{}, ended: map[string][]string{}}
}

// Wake hints that orders for agents of this daemon may be waiting. It never blocks.
func (s *Sessions) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Agents returns the ids of the agents linked here now, for introspection.
func (s *Sessions) Agents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.live))
	for id := range s.live {
		ids = append(ids, id)
	}
	return ids
}

// Run takes orders from the database and sends them until ctx ends. A daemon
// that cannot reach the database for Timing.Blind cuts its agents off: another
// daemon may reach it, and here their heartbeats extend no lease.
//
// Wake makes it look at once; underneath it looks every Timing.Poll while an
// agent is linked, and never while none is.
func (s *Sessions) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	for _, in := range s.desk.in {
		workers.Go(func() { s.work(ctx, in) })
	}
	tick := time.NewTicker(s.cfg.Timing.Poll)
	defer tick.Stop()
	var blind time.Time // since when orders cannot be read; zero: they can, or nobody waits for one
	for {
		idle, err := s.deliver(ctx)
		poll := tick.C
		if idle {
			poll = nil
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && blind.IsZero(): // said once, not at every poll
			blind = time.Now()
			s.log.Warn("orders cannot be read", "err", err)
		case err != nil && time.Since(blind) > s.cfg.Timing.Blind:
			s.cutAll(fmt.Errorf("this daemon cannot reach the database: %w", err))
		case err == nil:
			blind = time.Time{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-poll:
		}
	}
}

// cutAll ends every link. The agents try the next daemon, and come back when
// this one can register them.
func (s *Sessions) cutAll(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.live {
		l.cut(why)
	}
}

// deliver claims the open orders of the agents linked here and sends them, the
// cancellations of their leases, and whether they shall take nothing new. It also
// records the ends of links that could not be recorded at once. idle tells that
// there was nothing to do.
func (s *Sessions) deliver(ctx context.Context) (idle bool, err error) {
	s.mu.Lock()
	byAgent := make(map[string]*session, len(s.live))
	agents, links := make([]string, 0, len(s.live)), make([]string, 0, len(s.live))
	var sent orderColumns
	for id, l := range s.live {
		byAgent[id] = l
		agents, links = append(agents, id), append(links, l.id)
		l.sent.unanswered(time.Now().Add(-s.cfg.Timing.Claim), &sent)
	}
	ended := make(map[string][]string, len(s.ended))
	for id, links := range s.ended {
		ended[id] = slices.Clone(links)
	}
	s.mu.Unlock()
	if len(agents)+len(ended) == 0 {
		return true, nil
	}
	ctx, done := context.WithTimeout(ctx, s.cfg.Timing.Request)
	defer done()
	var out []addressed
	draining := map[string]bool{}
	err = s.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		queueClaims(b, agents, links, sent, &out)
		queueCancels(b, agents, &out)
		queueDrains(b, agents, draining)
		for _, id := range slices.Sorted(maps.Keys(ended)) {
			queueUnlink(b, id, ended[id])
		}
	})
	if err != nil {
		return false, fmt.Errorf("claim orders: %w", err)
	}
	s.recorded(ended)
	for id, l := range byAgent { // before any order
		if l.drained != draining[id] {
			l.drained = draining[id]
			l.post(Message{Drain: &Drain{On: l.drained}})
		}
	}
	for _, m := range out {
		if o := m.message.Offer; o != nil {
			byAgent[m.agent].sent.add(o, time.Now()) // before it can be answered
		}
		byAgent[m.agent].post(m.message)
	}
	return false, nil
}

// addressed is a message for one agent.
type addressed struct {
	agent   string
	message Message
}

// Serve handles one agent's link until it breaks or ctx ends, and closes it.
// agent is the id in the peer's certificate: what it says never names another.
func (s *Sessions) Serve(ctx context.Context, agent string, link Link) error {
	defer link.Close()
	helloCtx, done := context.WithTimeout(ctx, s.cfg.Timing.Request)
	defer done()
	m, err := link.Receive(helloCtx)
	if err != nil {
		return fmt.Errorf("agent %s: hello: %w", agent, err)
	}
	if err := admissible(agent, m.Hello); err != nil {
		_ = link.Send(helloCtx, Message{Goodbye: &Goodbye{Reason: err.Error()}}) // the link closes either way
		return fmt.Errorf("agent %s: %w", agent, err)
	}
	id, err := ulid.New(ulid.Now(), rand.Reader)
	if err != nil {
		return fmt.Errorf("agent %s: link id: %w", agent, err)
	}
	l := newSession(s, agent, id.String(), link)
	welcome, err := s.register(helloCtx, l, *m.Hello)
	if l.asked {
		defer s.unregister(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("agent %s: register: %w", agent, err)
	}
	l.post(Message{Welcome: &welcome}) // first in the outbox, before any order
	s.log.Info("agent linked", "agent", agent, "link", l.id, "session", m.Hello.Session, "leases", len(welcome.Keep))
	s.Wake()
	s.cfg.Wake()
	err = l.serve(ctx)
	s.log.Info("agent's link ended", "agent", agent, "link", l.id, "err", err)
	return err
}

func admissible(agent string, h *Hello) error {
	switch {
	case h == nil:
		return errors.New("the first message is no hello")
	case h.Protocol != ProtocolVersion:
		return fmt.Errorf("agent protocol %d: this daemon speaks %d", h.Protocol, ProtocolVersion)
	case agent == "" || h.Session == "" || len(h.Session) > 64 || len(h.Build) > MaxName:
		return errors.New("agent id, session or build is malformed")
	case h.Slots < 1 || h.Slots > MaxSlots:
		return fmt.Errorf("%d slots are not within 1 and %d", h.Slots, MaxSlots)
	}
	return ValidateLabels(h.Labels)
}

// register makes the link the agent's current one, in the database and here,
// and closes an older one.
func (s *Sessions) register(ctx context.Context, l *session, h Hello) (Welcome, error) {
	leave, err := s.doors.enter(ctx, l.agent)
	if err != nil {
		return Welcome{}, err
	}
	defer leave()
	welcome, err := s.record(ctx, l, h)
	if err != nil {
		return Welcome{}, err
	}
	l.drained = welcome.Drain
	s.mu.Lock()
	old := s.live[l.agent]
	s.live[l.agent] = l
	s.mu.Unlock()
	if old != nil {
		old.cut(errors.New("the agent opened a newer link"))
	}
	return welcome, nil
}

// unregister tells the database that the link is gone, unless a newer one has
// replaced it. While the database cannot be told, work would be leased to an
// agent that nobody reaches: deliver tries again.
func (s *Sessions) unregister(ctx context.Context, l *session) {
	s.mu.Lock()
	if s.live[l.agent] == l {
		delete(s.live, l.agent)
	}
	links := s.ended[l.agent]
	if len(links) == maxEnded {
		links = slices.Delete(links, 1, 2)
	}
	s.ended[l.agent] = append(links, l.id)
	s.mu.Unlock()
	// ctx may have ended with the link; its bound does not depend on it.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if err := s.cfg.Store.Batch(ctx, func(b *pgx.Batch) { queueUnlink(b, l.agent, []string{l.id}) }); err != nil {
		s.log.Info("the end of a link could not be recorded yet", "agent", l.agent, "link", l.id, "err", err)
		s.Wake()
		return
	}
	s.recorded(map[string][]string{l.agent: {l.id}})
}

// maxEnded bounds the links of one agent whose end is to be told. The first was
// the agent's when the outage began; the others are of hellos of which nobody
// heard whether they were recorded, and of these the latest are kept.
const maxEnded = 8

// recorded forgets ends that the database has been told of.
func (s *Sessions) recorded(ended map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for agent, told := range ended {
		left := slices.DeleteFunc(s.ended[agent], func(link string) bool { return slices.Contains(told, link) })
		if s.ended[agent] = left; len(left) == 0 {
			delete(s.ended, agent)
		}
	}
}
