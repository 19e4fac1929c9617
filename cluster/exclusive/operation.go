// An operation that this process holds: asked before every step, completed once.

package exclusive

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Operation is one held exclusive operation (§31). It has no time-to-live: the
// scope stays held until Complete, or until the process is replaced, its node is
// removed or its coordinator role moves on, and is abandoned then. All methods
// are safe for concurrent use.
type Operation struct {
	operations  *Operations
	scope       fsm.Scope
	epoch       fsm.Epoch
	guard       cluster.RoleGuard
	predecessor fsm.Epoch
	request     fsm.RequestID // of the completion

	inspected atomic.Bool
	completed atomic.Bool
}

func newOperation(o *Operations, r Request, epoch, predecessor fsm.Epoch) *Operation {
	op := &Operation{operations: o, scope: r.Scope, epoch: epoch, guard: r.Guard, predecessor: predecessor, request: cluster.NewRequestID()}
	op.inspected.Store(predecessor == 0)
	return op
}

// Scope is what is held.
func (op *Operation) Scope() fsm.Scope { return op.scope }

// Epoch fences the operation's effects: it is above every epoch handed out before.
func (op *Operation) Epoch() fsm.Epoch { return op.epoch }

// Predecessor is the epoch of the abandoned operation that this one took over; 0 when none.
func (op *Operation) Predecessor() fsm.Epoch { return op.predecessor }

// Inspect runs look, which reads from the database and the outside what the
// predecessor did, continues or undoes it, and records that. Only its nil makes
// the operation usable; after an error it may be run again. Not needed, and
// harmless, without a predecessor.
func (op *Operation) Inspect(ctx context.Context, look func(context.Context) error) error {
	if op.inspected.Load() {
		return nil
	}
	if err := op.authority(); err != nil {
		return err
	}
	if err := look(ctx); err != nil {
		return ErrUninspected.Wrap(err, "%s epoch %d took over epoch %d", op.scope, op.epoch, op.predecessor)
	}
	op.inspected.Store(true)
	return nil
}

// Check returns nil when the operation may take its next step. It reads atomics
// and the cached view only, so ask it before each one. FENCED once the operation
// is over or abandoned; FY-ROLE-002 while this node cannot confirm its view, and
// the operation may go on when it can again; ErrUninspected before Inspect.
func (op *Operation) Check() error {
	if err := op.authority(); err != nil {
		return err
	}
	if !op.inspected.Load() {
		return ErrUninspected.Wrap(nil, "%s epoch %d took over epoch %d", op.scope, op.epoch, op.predecessor)
	}
	return nil
}

// authority says whether the committed view still gives the scope to this operation.
func (op *Operation) authority() error {
	if _, coordinated := op.scope.Coordinator(); coordinated {
		if err := op.guard.Check(); err != nil {
			return err
		}
	}
	v := op.operations.backend.View()
	switch {
	case !op.heldIn(v):
		return cluster.ErrFenced.Wrap(nil, "%s epoch %d is over", op.scope, op.epoch)
	case v.Epoch < op.epoch:
		return cluster.ErrUnconfirmed.Wrap(nil, "%s epoch %d: this node has not seen it committed yet", op.scope, op.epoch)
	}
	if now := op.operations.now(); v.Stale(now) {
		return cluster.ErrUnconfirmed.Wrap(nil, "%s epoch %d: the view was last confirmed %s ago", op.scope, op.epoch, v.Age(now))
	}
	return nil
}

// viewPoll is how late a confirmation, or a view whose hint was lost, may be seen.
const viewPoll = 50 * time.Millisecond

// await returns once this node's view gives the scope to the operation and is
// confirmed, or when that cannot come about any more, or with ctx.
func (op *Operation) await(ctx context.Context) {
	changed, stop := op.operations.backend.Changes()
	defer stop()
	again := time.NewTicker(viewPoll)
	defer again.Stop()
	for errors.Is(op.authority(), cluster.ErrUnconfirmed) {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again.C:
		}
	}
}

func (op *Operation) held() bool { return op.heldIn(op.operations.backend.View()) }

// heldIn reports whether the operation is under way, as far as the view tells.
func (op *Operation) heldIn(v cluster.View) bool {
	if op.completed.Load() {
		return false
	}
	x, held := v.Held(op.scope)
	return v.Epoch < op.epoch || held && x.Epoch == op.epoch && !v.Abandoned(x)
}

// Complete frees the scope. Call it only when the operation's effects are known;
// an operation whose effects are unknown stays held until they are. After an
// error that may be retried it may be called again; FENCED is final: the
// operation is somebody else's to inspect.
func (op *Operation) Complete(ctx context.Context) error {
	switch {
	case op.completed.Load():
		return nil
	case !op.inspected.Load():
		return ErrUninspected.Wrap(nil, "%s epoch %d took over epoch %d", op.scope, op.epoch, op.predecessor)
	}
	self := op.operations.backend.Self()
	_, err := op.operations.backend.Propose(ctx, fsm.Proposal{Request: op.request, Command: fsm.CompleteExclusiveOperation{
		Scope: op.scope, Owner: self.Node, Incarnation: self.Incarnation, Epoch: op.epoch,
	}})
	if err == nil {
		op.completed.Store(true)
	}
	return err
}
