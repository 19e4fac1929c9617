// The scheduler's role: what the one SchedulerLeader does with its guard (§36, §37).

package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Store is what the scheduler needs of roles/store: every statement that writes or decides is fenced.
type Store interface {
	RaiseFence(ctx context.Context, g cluster.RoleGuard) error
	Fenced(ctx context.Context, g cluster.RoleGuard, fill func(*pgx.Batch)) error
	Writable() (ok bool, since time.Duration) // whether this node can write to PostgreSQL, and for how long that has held
	Database                                  // for what only informs
}

// Config is everything the scheduler uses of the outside. Zero durations and sizes take the defaults.
type Config struct {
	Store      Store
	Dispatched func()        // called after a commit that made or re-stamped orders; may be nil
	Hold       func() string // why nothing may be leased now (maintenance); "": nothing forbids it; may be nil
	Logger     *slog.Logger

	LeaseTTL  time.Duration // 60 s; the time of a new lease
	AgentTTL  time.Duration // 30 s; an agent not heard of for longer gets nothing
	Tick      time.Duration // 1 s; how often the lease clock moves and everything is looked at without being woken
	Survey    time.Duration // 15 s; how often the queues are counted for the metrics
	BatchSize int           // 256; most leases made, and most rows of any other kind moved, in one transaction
	Retention Retention
}

// defaultAgentTTL is three heartbeats of an agent.
const defaultAgentTTL = 30 * time.Second

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&c.LeaseTTL, time.Minute}, {&c.AgentTTL, defaultAgentTTL}, {&c.Tick, time.Second}, {&c.Survey, 15 * time.Second},
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
	if c.Hold == nil {
		c.Hold = func() string { return "" }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Retention = c.Retention.withDefaults()
	return c
}

// Scheduler knows nothing about jobs that PostgreSQL does not hold: what it
// keeps between two transactions is a plan that the next one verifies, and is
// made anew for each epoch (§84, §249).
type Scheduler struct {
	cfg    Config
	leases *bell // there may be something to lease
	upkeep *bell // there may be something to end or to settle
	meter  *meter

	mu     sync.Mutex
	ledger *ledger // of the latest epoch
}

// New makes a scheduler; its loops run only under a guard.
func New(cfg Config) *Scheduler {
	return &Scheduler{cfg: cfg.withDefaults(), leases: newBell(), upkeep: newBell(), meter: newMeter()}
}

// Wake hints that jobs were submitted, ended or cancelled, or that agents became
// free. It never blocks and means nothing on a daemon that does not own the role.
func (s *Scheduler) Wake() {
	s.leases.ring()
	s.upkeep.ring()
}

// Spec describes the role to the actor system.
func (s *Scheduler) Spec() actors.RoleSpec {
	return actors.RoleSpec{
		Role:      fsm.SchedulerLeader,
		Raise:     s.cfg.Store.RaiseFence,
		Reconcile: s.Reconcile,
		Loops: []actors.Loop{
			// The first leases wait for nothing. What reconciliation has just done, and what nobody
			// waits for, would only take the server's time from them.
			{Name: "lease", Run: s.loop("lease", s.leases, 0, s.lease)},
			// Woken again and again by a busy fleet, the upkeep runs ten times a tick at most.
			{Name: "upkeep", Run: s.loop("upkeep", s.upkeep, s.cfg.Tick/10, s.keep)},
			{Name: "survey", Run: s.loop("survey", nil, s.cfg.Tick/2, s.survey)},
			{Name: "retention", Run: s.loop("retention", nil, s.cfg.Tick, s.prune)},
		},
	}
}
