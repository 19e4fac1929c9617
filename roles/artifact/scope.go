// The exclusive scope that makes a collection the only one in the fleet.

package artifact

import (
	"context"
	"errors"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/fsm"
)

// Scope is a held exclusive operation; see exclusive.Operation.
type Scope interface {
	Check() error                   // nil while the next step may be taken
	Complete(context.Context) error // frees the scope
}

// Begin takes the scope of garbage collection.
type Begin func(context.Context) (Scope, error)

// Exclusively takes GlobalGcCoordination (§31). A collection that was abandoned
// is taken over at once: each of its deletions was right by itself, so there is
// nothing to inspect or to undo.
func Exclusively(ops *exclusive.Operations, view func() cluster.View) Begin {
	return func(ctx context.Context) (Scope, error) {
		r := exclusive.Request{Scope: fsm.GlobalGcCoordination}
		if state, held := exclusive.StateOf(view().View, r.Scope); state == exclusive.Unknown {
			r.Abandoned = held.Epoch
		}
		op, err := ops.Begin(ctx, r)
		if err != nil {
			return nil, err
		}
		nothing := func(context.Context) error { return nil }
		return op, op.Inspect(ctx, nothing)
	}
}

func heldElsewhere(err error) bool { return errors.Is(err, exclusive.ErrHeld) }
