// The tree of one role under one epoch: the role actor, what it does to become active, and how it ends.

package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/migrations/mutant"
)

var (
	// errStopped revokes the guard of a tree that was stopped while the view still wanted it.
	errStopped = errors.New("the role actor was stopped")
	errNotOurs = errors.New("this epoch of the role is not ours")
)

// failed tells the role actor that something it started off its mailbox panicked.
type failed struct{ err error }

// roleActor owns a tree. Its mailbox never waits for anything: whatever can
// block runs on the tree's goroutines, under the guard's context.
type roleActor struct{ tree *tree }

func (a *roleActor) Receive(c actor.Context) {
	t := a.tree
	switch m := c.Message().(type) {
	case *actor.Started:
		t.life.start(t.begin)
	case *work:
		t.perform(m)
	case *failed:
		panic(m.err)
	default:
		t.sys.ignored(t.rec, m)
	}
}

// tree is one epoch of one role in this process. It is made for its epoch and
// never reused, so nothing of an older epoch can leak into it.
type tree struct {
	sys   *System
	seat  *seat
	epoch fsm.Epoch
	rec   *record
	life  *life
	over  chan struct{} // closed when the actor has stopped and every goroutine has returned

	ctx     context.Context // ends when the guard is revoked or the actor stops
	cancel  context.CancelCauseFunc
	working atomic.Int64 // pieces of work running
	active  atomic.Bool  // it became active

	mu      sync.Mutex
	guard   cluster.RoleGuard // zero until acquired
	leaving bool              // the actor stops: no guard may be kept
	grace   *time.Timer       // from poison to stop
}

func newTree(s *System, seat *seat, epoch fsm.Epoch) *tree {
	t := &tree{sys: s, seat: seat, epoch: epoch, over: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.life = newLife(&s.work, t.ended)
	t.rec = &record{
		path: t.path(), parent: rolePath(t.role()), kind: KindRole, role: t.role(), epoch: epoch,
		guard: t.guardState, bound: MaxWork, onStopping: t.leaveOffice, onStopped: t.life.leave,
	}
	return t
}

func (t *tree) role() fsm.Role { return t.seat.spec.Role }
func (t *tree) path() string   { return treePath(t.role(), t.epoch) }

// begin acquires the guard, raises the fence, reconciles and starts the loops, in this order (§83, §88).
func (t *tree) begin() {
	err := protect(t.becomeActive)
	var p *panicError
	switch {
	case errors.As(err, &p):
		t.sys.log.Error("role panicked while becoming active", "actor", t.rec.path, "reason", p.value, "stack", string(p.stack))
		if t.ctx.Err() == nil {
			t.sys.send(t.path(), &failed{err})
		}
	case err == nil || t.ctx.Err() != nil || t.guardState() == cluster.GuardRevoked:
	case errors.Is(err, errNotOurs):
		t.sys.log.Debug("role moved on before its actor began", "actor", t.rec.path, "error", err)
		t.sys.proto.Root.Stop(t.sys.pid(t.path()))
	default:
		code := CodeNotActive
		var e *cluster.Error
		if errors.As(err, &e) {
			code = e.Code
		}
		t.giveUp(code, err.Error())
	}
}

func (t *tree) becomeActive() error {
	spec := t.seat.spec
	if err := t.pause(t.seat.pause(t.sys.cfg.Backoff)); err != nil {
		return err
	}
	g, err := t.acquire()
	if err != nil {
		return err
	}
	if err := t.attempt("raise the fence", func() error { return spec.Raise(g.Context(), g) }); err != nil {
		return err
	}
	if err := t.advance(g, cluster.TreeFenced, cluster.GuardFenced); err != nil {
		return err
	}
	if err := t.attempt("reconcile", func() error {
		found, err := spec.Reconcile(g.Context(), g)
		if err == nil {
			t.rec.scanned(t.sys.cfg.Now(), found)
		}
		return err
	}); err != nil {
		return err
	}
	if err := t.advance(g, cluster.TreeActive, cluster.GuardActive); err != nil {
		return err
	}
	t.active.Store(true)
	for _, loop := range spec.Loops {
		if mutant.Planted(mutant.LoopNotJoined) {
			go t.runLoop(g, loop)
			continue
		}
		t.life.start(func() { t.runLoop(g, loop) })
	}
	return nil
}

// acquire takes the guard of exactly this epoch; it exists unless the epoch is over.
func (t *tree) acquire() (cluster.RoleGuard, error) {
	g, err := t.sys.cfg.Trees.AcquireRole(t.ctx, t.role())
	if err != nil {
		return g, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	if g.Epoch() != t.epoch {
		return g, fmt.Errorf("%w: the grant is under epoch %d, not %d", errNotOurs, g.Epoch(), t.epoch)
	}
	t.mu.Lock()
	t.guard = g
	leaving := t.leaving
	t.mu.Unlock()
	context.AfterFunc(g.Context(), func() { // it runs on a goroutine of its own, never in the service's
		t.cancel(context.Cause(g.Context()))
		// The watcher may never have seen this epoch: the next view can come before it looks.
		t.sys.send(rolePath(t.role()), &poison{t.epoch})
	})
	if leaving {
		g.Lost(errStopped)
	}
	return g, nil
}

// advance reports progress and waits until the service has moved the guard on.
func (t *tree) advance(g cluster.RoleGuard, ev cluster.TreeEvent, to cluster.GuardState) error {
	t.sys.report(t.role(), t.epoch, ev, "", "")
	for g.State() < to {
		if err := t.pause(time.Millisecond); err != nil {
			return err
		}
	}
	return context.Cause(g.Context()) // revoked is beyond active; t.ctx follows a moment later
}

// attempt repeats a step with back-off while its error may pass, for at most
// Config.BringUp. It returns nil only when the step succeeded under a live guard.
func (t *tree) attempt(what string, step func() error) error {
	deadline := t.sys.cfg.Now().Add(t.sys.cfg.BringUp)
	for n := 0; ; n++ {
		err := step()
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		if err == nil {
			return nil
		}
		wait := t.sys.cfg.Backoff.wait(n)
		if final(err) || t.sys.cfg.Now().Add(wait).After(deadline) {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.rec.failed(err, false)
		t.sys.log.Warn("role is not active yet", "actor", t.rec.path, "step", what, "error", err, "retry_in", wait)
		if err := t.pause(wait); err != nil {
			return err
		}
	}
}

// final reports whether trying again cannot help. A fence that refuses its own
// epoch means lost state or a second fleet: an operator has to look.
func final(err error) bool {
	var e *cluster.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case cluster.Fenced, cluster.IncompatibleVersion, cluster.MembershipConflict, cluster.JoinRejected:
		return true
	}
	return e.Code == cluster.CodeDatabaseAhead || e.Code == cluster.CodeDatabaseHistory
}

// pause waits, or returns why the tree ends.
func (t *tree) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// giveUp ends the role on this node by a committed release (§143).
func (t *tree) giveUp(code, reason string) {
	if r, ok := t.sys.registry.get(rolePath(t.role())); ok {
		r.failed(reason, false)
	}
	t.sys.log.Error("role given up", "role", t.role(), "epoch", t.epoch, "code", code, "reason", reason)
	t.sys.report(t.role(), t.epoch, cluster.TreeFailed, code, fsm.Clip(reason, fsm.MaxReason))
}

// abandon revokes the guard: the epoch is spent and the service takes the next
// one. Before the guard was acquired, the end of the tree says the same.
func (t *tree) abandon(cause error) {
	t.currentGuard().Lost(cause)
	t.cancel(cause)
}

// leaveOffice runs before the actor stops, whatever stops it: no actor that is
// gone leaves a live guard behind.
func (t *tree) leaveOffice() {
	t.mu.Lock()
	t.leaving = true
	t.mu.Unlock()
	if t.guardState() != cluster.GuardRevoked {
		t.abandon(errStopped)
	}
	t.cancel(errStopped)
}

// poison lets the actor drain its mailbox, and stops it after stopGrace (§294).
func (t *tree) poison() {
	t.sys.trace(trace.Poison, t.role(), t.epoch, t.path())
	t.sys.proto.Root.Poison(t.sys.pid(t.path()))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grace = time.AfterFunc(stopGrace, func() {
		t.sys.trace(trace.Stop, t.role(), t.epoch, t.path())
		t.sys.proto.Root.Stop(t.sys.pid(t.path()))
	})
}

// ended runs once, when the actor has stopped and every goroutine has returned.
func (t *tree) ended() {
	t.mu.Lock()
	if t.grace != nil {
		t.grace.Stop()
	}
	t.mu.Unlock()
	t.cancel(errStopped)
	t.sys.trace(trace.Terminated, t.role(), t.epoch, t.path())
	t.sys.report(t.role(), t.epoch, cluster.TreeEnded, "", "")
	t.seat.free(t)
	close(t.over)
	t.sys.send(rolePath(t.role()), &treeEnded{t.epoch})
}

func (t *tree) currentGuard() cluster.RoleGuard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guard
}

func (t *tree) guardState() cluster.GuardState { return t.currentGuard().State() }

func (t *tree) revoked() <-chan struct{} { return t.ctx.Done() }
