// The actor system of a daemon: what it is made of, how it starts, how it stops.

// Package actors turns committed leadership into running work: one supervised
// actor tree per owned role and epoch, and one coordination-leader actor while
// this node leads. DESIGN.md tells the flow.
package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// ExitRootDied is the exit code of a process whose root supervisor died: the
// node can no longer control what it owns, so another node must own it.
const ExitRootDied = 70

// Config is everything the actor system uses of the outside.
type Config struct {
	Trees   cluster.Trees   // the coordination service
	Backend cluster.Backend // for the coordination-leader actor
	Roles   []RoleSpec      // the roles this build can run

	// NewPlanner makes the planner of one leadership, as Placement.Begin does.
	NewPlanner func() Planner

	// Reconciler runs the checks of §244 while this node leads; nil: there is no such actor.
	Reconciler Reconciler

	Tracer trace.Tracer     // nil: nothing is traced
	Logger *slog.Logger     // nil: nothing is logged; it must not wait for who reads
	Now    func() time.Time // nil: time.Now; it must carry a monotonic reading
	// Exit ends the process. It must return or end the process without waiting
	// for this system to stop. Nil means that a dead root is only logged.
	Exit func(code int, reason string)

	Budget  Budget        // restarts of one actor or loop; zero: 3 in 10 s
	Backoff Backoff       // between restarts of a loop and attempts to become active; zero: 500 ms ×2 up to 5 s
	BringUp time.Duration // how long raising and reconciling may be retried before the role is given up; zero: 8 s
	Reload  time.Duration // how often views are read, and plans made, again, so that a lost hint only delays; zero: 1 s
	Tick    time.Duration // how often the coordination leader plans while placement is not settled; zero: 100 ms
	Sweep   time.Duration // how often the cluster reconciler looks while it finds nothing; zero: 30 s
	// AllowCrash honours Crash and Stall. For chaos tests only.
	AllowCrash bool
}

// stopGrace is how long a poisoned role actor may drain its mailbox before it is stopped (§294).
const stopGrace = time.Second

func (c Config) withDefaults() Config {
	if c.Tracer == nil {
		c.Tracer = trace.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Exit == nil {
		c.Exit = func(int, string) {}
	}
	if c.Budget == (Budget{}) {
		c.Budget = Budget{Restarts: 3, Window: 10 * time.Second}
	}
	if c.Backoff == (Backoff{}) {
		c.Backoff = Backoff{First: 500 * time.Millisecond, Max: 5 * time.Second}
	}
	c.BringUp = orDefault(c.BringUp, 8*time.Second)
	c.Reload = orDefault(c.Reload, time.Second)
	c.Tick = orDefault(c.Tick, 100*time.Millisecond)
	c.Sweep = orDefault(c.Sweep, 30*time.Second)
	return c
}

func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// System is a running actor system. All methods are safe for concurrent use.
type System struct {
	cfg   Config
	self  cluster.Identity
	log   *slog.Logger
	proto *actor.ActorSystem

	registry registry
	seats    []*seat // one for each role, in the order of Config.Roles
	lead     leadSeat

	root     *actor.PID
	rootGone chan struct{} // closed when the root actor has stopped

	stopping    atomic.Bool
	stopOnce    sync.Once
	death       sync.Once // of the root: Exit is called once
	cancelHints context.CancelFunc
	work        sync.WaitGroup // every goroutine of this system off a mailbox
	unsubscribe func()
	deadLetters atomic.Uint64
	unhandled   atomic.Uint64
}

// Start starts the actor system. It returns once the root actor is spawned; the
// trees follow the committed views.
func Start(cfg Config) (*System, error) {
	if cfg.Trees == nil || cfg.Backend == nil || cfg.NewPlanner == nil {
		return nil, errors.New("actors: Trees, Backend and NewPlanner are needed")
	}
	cfg = cfg.withDefaults()
	s := &System{
		cfg:      cfg,
		self:     cfg.Backend.Self(),
		log:      cfg.Logger.With("component", "actors"),
		rootGone: make(chan struct{}),
	}
	seen := map[fsm.Role]bool{}
	for _, spec := range cfg.Roles {
		if err := spec.check(); err != nil {
			return nil, err
		}
		if seen[spec.Role] {
			return nil, fmt.Errorf("actors: role %s has two specs", spec.Role)
		}
		seen[spec.Role] = true
		s.seats = append(s.seats, newSeat(spec))
	}
	s.proto = newProtoSystem(s.log)
	s.unsubscribe = s.countDeadLetters()

	props := s.props(&record{path: pathRoot, kind: KindRoot, onStopped: func() { close(s.rootGone) }},
		func() actor.Actor { return &root{sys: s} })
	pid, err := s.proto.Root.SpawnNamed(props, pathRoot)
	if err != nil {
		return nil, fmt.Errorf("actors: spawn the root: %w", err)
	}
	s.root = pid
	s.startHints()
	return s, nil
}

// Stop gives every role up and ends its tree, then silences and stops the
// watcher, the leader and the supervisors, and
// returns when every actor and goroutine has ended. When ctx ends first its
// error names what still runs; such work holds no active guard any more.
func (s *System) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		s.stopping.Store(true) // from here on no tree starts
		for _, seat := range s.seats {
			s.retire(seat)
		}
	})
	for _, seat := range s.seats {
		if err := s.await(ctx, seat.vacant()); err != nil {
			return err
		}
	}
	s.cancelHints()           // the watcher hears nothing more
	s.proto.Root.Stop(s.root) // stops its children, the youngest first
	if err := s.await(ctx, s.rootGone); err != nil {
		return err
	}
	idle := make(chan struct{})
	go func() { // ends with the last goroutine it waits for
		s.work.Wait()
		close(idle)
	}()
	if err := s.await(ctx, idle); err != nil {
		return err
	}
	s.unsubscribe()
	return nil
}

func (s *System) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("actors: %w: still running: %v", context.Cause(ctx), s.registry.paths())
	}
}

// DeadLetters counts messages that reached no actor since Start.
func (s *System) DeadLetters() uint64 { return s.deadLetters.Load() }

// Unhandled counts messages that an actor had no use for since Start.
func (s *System) Unhandled() uint64 { return s.unhandled.Load() }

func (s *System) trace(kind trace.Kind, role fsm.Role, epoch fsm.Epoch, detail string) {
	s.cfg.Tracer.Trace(trace.Event{
		Node: s.self.Node, Incarnation: s.self.Incarnation,
		Kind: kind, Role: role, Epoch: epoch, Detail: detail,
	})
}

// send delivers a message to an actor by its path; one to an actor that is not
// there is counted, without the detour through the engine.
func (s *System) send(path string, msg any) {
	if _, ok := s.registry.get(path); !ok {
		s.undelivered(path, msg)
		return
	}
	s.proto.Root.Send(s.pid(path), msg)
}

func (s *System) pid(path string) *actor.PID { return s.proto.NewLocalPID(processID(path)) }
