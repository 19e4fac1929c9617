// The exclusive scope that makes a collection the only one in the fleet.

package artifact

import (
	"context"
	"errors"
	"sync"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/fsm"
)

// Scope is a held exclusive operation; see exclusive.Operation.
type Scope interface {
	Check() error                   // nil while the next step may be taken
	Complete(context.Context) error // frees the scope; called once, at the end
}

// Begin takes the scope of garbage collection.
type Begin func(context.Context) (Scope, error)

// Exclusively takes GlobalGcCoordination (§31). A collection that was abandoned
// is taken over at once: each of its deletions was right by itself, so there is
// nothing to inspect or to undo. The same holds for one of this process whose
// scope could not be freed, or not be handed out: the next Begin goes on with it,
// or nobody could collect until this process ends.
func Exclusively(ops *exclusive.Operations, view func() cluster.View) Begin {
	turn := make(chan struct{}, 1) // one collection of this process
	return func(ctx context.Context) (Scope, error) {
		select {
		case turn <- struct{}{}:
		default:
			return nil, exclusive.ErrHeld.Wrap(nil, "this daemon is collecting already")
		}
		op, err := take(ctx, ops, view)
		if err != nil {
			<-turn
			return nil, err
		}
		return taken{op, sync.OnceFunc(func() { <-turn })}, nil
	}
}

func take(ctx context.Context, ops *exclusive.Operations, view func() cluster.View) (*exclusive.Operation, error) {
	op, left := ops.Current(fsm.GlobalGcCoordination)
	if !left {
		r := exclusive.Request{Scope: fsm.GlobalGcCoordination}
		if state, held := exclusive.StateOf(view().View, r.Scope); state == exclusive.Unknown {
			r.Abandoned = held.Epoch
		}
		var err error
		if op, err = ops.Begin(ctx, r); err != nil {
			return nil, err
		}
	}
	nothing := func(context.Context) error { return nil }
	return op, op.Inspect(ctx, nothing)
}

// taken ends this process's turn with the collection, whether its scope could be freed or not.
type taken struct {
	*exclusive.Operation
	leave func()
}

// Complete: see Scope.
func (t taken) Complete(ctx context.Context) error {
	defer t.leave()
	return t.Operation.Complete(ctx)
}

func heldElsewhere(err error) bool { return errors.Is(err, exclusive.ErrHeld) }
