// Package raftnode is the distributed coordination engine (§159–§163): cluster.Backend on hashicorp/raft.
package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// Node is one member's engine. All methods are safe for concurrent use.
type Node struct {
	cfg     Config
	raft    *raft.Raft
	store   *store
	log     *logStore
	machine *machine

	confirmed confirmation
	reports   reports
	hints     cluster.Hints
	readyTerm atomic.Uint64 // the term whose barrier has passed here; 0 when none
	failure   atomic.Pointer[cluster.Error]
	reporter  atomic.Pointer[func() cluster.HealthReport]

	early    *early.Watch // nil: elections wait for the timers
	handover timer        // since when the library refuses proposals because leadership is being handed over

	volume     volume
	snapshotAt atomic.Uint64 // applied index of the last snapshot that this node asked for

	turned  chan struct{} // leadership may have changed
	remark  chan struct{} // the high-water mark must be written now
	stop    context.Context
	cancel  context.CancelFunc
	sound   context.Context // ends with stop, and at the first failure
	giveUp  context.CancelFunc
	loops   sync.WaitGroup
	marks   sync.WaitGroup // markLoop, which a hung disk can hold
	calls   calls
	ended   chan struct{} // closed once the library has stopped
	closing sync.Once
	closed  error
}

var _ cluster.Backend = (*Node)(nil)

// Open starts the engine. Every doubt about the store is a StorageFailure with
// its own code, and the files stay as they are. Without state and without
// Bootstrap the node waits to be added; it never founds a cluster by itself.
func Open(cfg Config) (*Node, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	st, err := openStore(cfg)
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, store: st,
		turned: make(chan struct{}, 1), remark: make(chan struct{}, 1), ended: make(chan struct{}),
		volume: volume{limit: cfg.Snapshots.Bytes, full: make(chan struct{}, 1)},
	}
	n.reports.clear()
	n.stop, n.cancel = context.WithCancel(context.Background())
	n.sound, n.giveUp = context.WithCancel(n.stop)
	if err := n.start(); err != nil {
		n.cancel()
		n.loops.Wait()
		return nil, errors.Join(err, st.close())
	}
	return n, nil
}

func (n *Node) start() error {
	n.machine = newMachine(n.store.found.state, n.cfg.Now)
	n.machine.published, n.machine.caughtUp, n.machine.giveUp, n.machine.before = n.viewPublished, n.caughtUp, n.fail, n.cfg.beforeApply
	n.machine.hashed = n.cfg.Applied
	n.store.high.writing = n.cfg.beforeMark
	if c := n.store.found.configuration; c != nil {
		n.machine.configure(c)
	}
	var inner raft.LogStore = n.store.log
	if n.cfg.WrapLog != nil {
		inner = n.cfg.WrapLog(inner)
	}
	n.log = &logStore{LogStore: inner, now: n.cfg.Now, broken: n.logBroken, failed: n.logFailed, wrote: n.volume.wrote}
	cached, err := raft.NewLogCache(trailingLogs/2, n.installed())
	if err != nil {
		return err
	}
	stable := stableStore{StableStore: n.store.stable, high: n.store.high, log: n.log, stop: n.stop}
	if n.cfg.WrapStable != nil {
		stable.StableStore = n.cfg.WrapStable(stable.StableStore)
	}
	n.store.snapshots.completed = func(index uint64, c raft.Configuration) {
		n.volume.reset()
		// Whether it is applied, Restore says: of an installed one the state machine has nothing yet.
		n.machine.configure(&configuration{index: index, suffrage: suffrageOf(c)})
	}
	var snapshots raft.SnapshotStore = n.store.snapshots
	if n.cfg.WrapSnapshots != nil {
		snapshots = n.cfg.WrapSnapshots(snapshots)
	}
	snapshots = watchedSnapshots{snapshots, n.log}

	// The library blocks on this channel, so it is read before the library starts.
	transitions := make(chan bool, 16)
	n.loops.Go(func() { n.drainNotifications(transitions) })
	lib := n.cfg.library(transitions)
	if n.cfg.Bootstrap {
		founders := raft.Configuration{Servers: []raft.Server{{ID: lib.LocalID, Address: serverAddress(n.cfg.Self.Node)}}}
		founding := stable
		founding.once = true
		if err := raft.BootstrapCluster(lib, cached, founding, snapshots, n.cfg.Transport, founders); err != nil {
			return cluster.ErrStoreFailed.Wrap(err, "bootstrap")
		}
	}
	if n.raft, err = raft.NewRaft(lib, n.machine, cached, stable, snapshots, n.cfg.Transport); err != nil {
		// All that it reads was read and found whole just before.
		return cluster.ErrStoreFailed.Wrap(err, "begin from %s", n.cfg.Dir)
	}
	n.cfg.Control.Handle(transport.FamilyControl, methodPing, n.handlePing)
	n.cfg.Control.Handle(transport.FamilyControl, methodPropose, n.handlePropose)
	n.watchLeader()
	n.loops.Go(n.leadLoop)
	n.loops.Go(n.pingLoop)
	n.loops.Go(n.announceLoop)
	n.marks.Go(n.markLoop)
	n.loops.Go(n.watch)
	return nil
}

// Self implements cluster.Backend.
func (n *Node) Self() cluster.Identity { return n.cfg.Self }

// Fresh reports whether this node has no part in any cluster yet: it holds no
// entry and no snapshot, and must be bootstrapped or join.
func (n *Node) Fresh() bool {
	return n.raft.LastIndex() == 0 && !n.machine.current().Initialised()
}

// Failure is why this node gave up coordination; nil while it has not.
func (n *Node) Failure() error {
	if e := n.failure.Load(); e != nil {
		return e
	}
	return nil
}

// View implements cluster.Backend.
func (n *Node) View() cluster.View {
	v := cluster.View{Confirmed: n.Confirmed(), RaftTerm: n.raft.CurrentTerm()}
	v.View = n.machine.current()
	v.KnownLeader, _ = n.leader()
	return v
}

// Changes implements cluster.Backend. A hint also follows a change of leadership.
func (n *Node) Changes() (<-chan struct{}, func()) { return n.hints.Subscribe() }

// SetReporter implements cluster.Backend.
func (n *Node) SetReporter(f func() cluster.HealthReport) { n.reporter.Store(&f) }

// viewPublished runs on the library's apply goroutine: it must not block.
func (n *Node) viewPublished(fsm.View) {
	n.hints.Notify()
	// A restart must know its members: without them it could neither dial nor admit any.
	select {
	case n.remark <- struct{}{}:
	default:
	}
}

// caughtUp runs on the library's apply goroutine: everything up to index is applied.
func (n *Node) caughtUp(index uint64) {
	n.store.high.raiseApplied(index)
	n.confirmed.appliedTo(index)
}

// fail gives up coordination for good: no confirmation, no leadership. The first cause stays.
func (n *Node) fail(e *cluster.Error) {
	if !n.failure.CompareAndSwap(nil, e) {
		return
	}
	n.giveUp()
	n.cfg.Logger.Error("coordination given up", "code", e.Code, "error", e, "hint", e.Hint)
	n.hints.Notify()
	n.turn()
}

// Close implements cluster.Backend.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closed = n.shutdown() })
	return n.closed
}

func (n *Node) shutdown() error {
	// The library never answers a future it had queued when it stops, so the
	// calls in flight end first.
	n.calls.drain(drainBound)
	n.cancel()
	n.loops.Wait()
	done := make(chan error, 1)
	late := make(chan struct{})
	// It outlives this call when the disk hangs, and then closes the store when the disk is back, so that
	// another process can open it; its error is the log's.
	go func() {
		err := n.raft.Shutdown().Error()
		close(n.ended)
		n.calls.drain(drainBound)
		n.marks.Wait()
		n.store.high.raiseApplied(n.machine.current().Index)
		err = errors.Join(err, n.store.high.flush(), n.store.close())
		select {
		case <-late:
			n.cfg.Logger.Warn("the engine stopped at last", "error", err)
		default:
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(closeBound):
		close(late)
		return ErrStoreStalled.Wrap(nil, "the engine did not stop within %s", closeBound)
	}
}

// calls counts the goroutines that wait for the library, so that Close can wait for them.
type calls struct {
	mu     sync.Mutex
	closed bool
	active int
	idle   chan struct{} // non-nil while drain waits
}

// start runs f on its own goroutine; false once drain was called.
func (c *calls) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	go func() {
		defer c.end()
		f()
	}()
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active--; c.active == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// drain refuses new calls and waits for those that run, at most for the bound.
func (c *calls) drain(bound time.Duration) {
	c.mu.Lock()
	c.closed = true
	if c.active == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(bound):
	}
}

func (n *Node) String() string { return fmt.Sprintf("raft node %s", n.cfg.Self.Node) }
