// The scheduler's role: what the one SchedulerLeader does with its guard (§36, §37).

package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Store is what the scheduler needs of roles/store: every statement it makes is fenced.
type Store interface {
	RaiseFence(ctx context.Context, g cluster.RoleGuard) error
	Fenced(ctx context.Context, g cluster.RoleGuard, fill func(*pgx.Batch)) error
}

// Config is everything the scheduler uses of the outside. Zero durations and sizes take the defaults.
type Config struct {
	Store      Store
	Dispatched func() // called after a commit that made or re-stamped orders; may be nil
	Logger     *slog.Logger

	LeaseTTL  time.Duration // 60 s; the time of a new lease
	AgentTTL  time.Duration // 30 s; an agent not heard of for longer gets nothing
	Poll      time.Duration // 200 ms; how often the queue is looked at without being woken
	Tick      time.Duration // 1 s
	Expiry    time.Duration // 1 s
	Dispatch  time.Duration // 1 s; how often orders are re-stamped and voided
	BatchSize int           // 256; most leases made, and most leases ended, in one transaction
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&c.LeaseTTL, time.Minute}, {&c.AgentTTL, 30 * time.Second}, {&c.Poll, 200 * time.Millisecond},
		{&c.Tick, time.Second}, {&c.Expiry, time.Second}, {&c.Dispatch, time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if c.BatchSize <= 0 {
		c.BatchSize = 256
	}
	if c.Dispatched == nil {
		c.Dispatched = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Scheduler holds no state about jobs: the queue, the leases and the capacity
// of the agents are read from PostgreSQL each time, so that a new leader starts
// with the same knowledge as the old one had (§84, §249).
type Scheduler struct {
	cfg    Config
	leases *bell // there may be something to lease
	ends   *bell // there may be a lease to end
}

// New makes a scheduler; its loops run only under a guard.
func New(cfg Config) *Scheduler {
	return &Scheduler{cfg: cfg.withDefaults(), leases: newBell(), ends: newBell()}
}

// Wake hints that jobs were submitted or agents became free. It never blocks
// and means nothing on a daemon that does not own the role.
func (s *Scheduler) Wake() {
	s.leases.ring()
	s.ends.ring()
}

// Spec describes the role to the actor system.
func (s *Scheduler) Spec() actors.RoleSpec {
	return actors.RoleSpec{
		Role:      fsm.SchedulerLeader,
		Raise:     s.cfg.Store.RaiseFence,
		Reconcile: s.Reconcile,
		Loops: []actors.Loop{
			{Name: "tick", Run: s.loop("tick", s.cfg.Tick, nil, s.tick)},
			{Name: "expiry", Run: s.loop("expiry", s.cfg.Expiry, s.ends, s.expire)},
			{Name: "dispatch", Run: s.loop("dispatch", s.cfg.Dispatch, nil, s.dispatch)},
			{Name: "lease", Run: s.loop("lease", s.cfg.Poll, s.leases, s.lease)},
		},
	}
}

// patience is how many times in a row a loop's step may fail without harm to
// the epoch before the loop itself gives up.
const patience = 5

// loop runs step every interval and when the bell rings, as long as the guard
// is active. A step that reports more to do is repeated at once. A failed step
// is tried again at the next interval; its guard tells whether it may be.
func (s *Scheduler) loop(name string, every time.Duration, b *bell, step func(context.Context, cluster.RoleGuard) (more bool, err error)) func(context.Context, cluster.RoleGuard) error {
	return func(ctx context.Context, g cluster.RoleGuard) error {
		t := time.NewTicker(every)
		defer t.Stop()
		failed := 0
		for {
			if ctx.Err() != nil {
				return nil
			}
			if err := g.CheckActive(); err != nil {
				return err
			}
			more, err := step(ctx, g)
			switch {
			case err == nil:
				failed = 0
			case ctx.Err() != nil:
				return nil
			default:
				if failed++; failed >= patience || g.Check() != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				s.cfg.Logger.Warn("a scheduler step failed and changed nothing", "loop", name, "epoch", g.Epoch(), "err", err)
			}
			if more && err == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			case <-b.rung():
			}
		}
	}
}

// bell is a hint that coalesces; the nil bell never rings.
type bell struct{ c chan struct{} }

func newBell() *bell { return &bell{c: make(chan struct{}, 1)} }

func (b *bell) ring() {
	select {
	case b.c <- struct{}{}:
	default:
	}
}

func (b *bell) rung() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.c
}
