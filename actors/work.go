// Work: a function that a role actor runs under its guard for somebody else.

package actors

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// MaxWork is how many pieces of work may wait in a role actor's mailbox, and
// how many may run at a time.
const MaxWork = 64

// ErrOverloaded: the role actor has MaxWork pieces of work already (§219).
var ErrOverloaded = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-ROLE-013",
	Message: "the role has too much work queued", Hint: "retry with back-off"}

// errRoleStopped answers work that met a role actor on its way out.
var errRoleStopped = cluster.ErrFenced.Wrap(nil, "the role stopped before the work began")

// errNotActive answers work that met a role before its reconciliation passed.
var errNotActive = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-ROLE-014",
	Message: "the role is not active yet", Hint: "retry with back-off"}

// The states of a piece of work: whoever moves it out of waiting answers for it.
const (
	workWaiting int32 = 0
	workTaken   int32 = 1
	workRefused int32 = 2
)

// work is the message that carries a function to a role actor.
type work struct {
	do     func(context.Context, cluster.RoleGuard) error
	state  atomic.Int32
	answer chan error // buffered: exactly one answer
}

func (w *work) take() bool { return w.state.CompareAndSwap(workWaiting, workTaken) }

func (w *work) refuse(err error) {
	if w.state.CompareAndSwap(workWaiting, workRefused) {
		w.answer <- err
	}
}

// Do runs a function under the role's guard on this node and returns its error.
// The function runs off the mailbox, with a context that ends when the guard is
// revoked. Fenced when the role is revoked before the function began, NotLeader
// (FY-ROLE-001) when this process does not own the role, ErrOverloaded when
// MaxWork is reached. When ctx ends first, a function that has begun goes on.
func (s *System) Do(ctx context.Context, role fsm.Role, do func(context.Context, cluster.RoleGuard) error) error {
	t := s.treeOf(role)
	if t == nil {
		return cluster.ErrNotOwner.Wrap(nil, "%s does not run on this node", role)
	}
	w := &work{do: do, answer: make(chan error, 1)}
	s.send(t.path(), w)
	select {
	case err := <-w.answer:
		return err
	case <-t.revoked():
		// A stuck actor, or one that was stopped with messages queued, would never answer.
		w.refuse(errRoleStopped)
	case <-ctx.Done():
		w.refuse(context.Cause(ctx))
	}
	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// perform starts a piece of work that reached the actor.
func (t *tree) perform(w *work) {
	g := t.currentGuard()
	switch {
	case t.ctx.Err() != nil:
		w.refuse(errRoleStopped)
	case g.State() < cluster.GuardActive:
		w.refuse(errNotActive)
	case g.CheckActive() != nil:
		w.refuse(errRoleStopped)
	case t.working.Add(1) > MaxWork:
		t.working.Add(-1)
		w.refuse(ErrOverloaded)
	case !w.take():
		t.working.Add(-1)
	case !t.life.start(func() {
		defer t.working.Add(-1)
		w.answer <- protect(func() error { return w.do(g.Context(), g) })
	}):
		t.working.Add(-1)
		w.answer <- errRoleStopped
	}
}

// panicError is a panic that was caught off a mailbox.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
