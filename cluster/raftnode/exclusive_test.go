// Exclusive operations in a fleet: begun by a follower, abandoned by its restart, taken over by another.

package raftnode

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	operations "github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestFollowerHoldsAnExclusiveOperation(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		const scope = fsm.GlobalGcCoordination
		leader := f.leader()
		m, o := f.others(leader)[0], f.others(leader)[1]
		op, err := operations.New(m.node, nil).Begin(t.Context(), operations.Request{Scope: scope})
		require.NoError(t, err)
		require.NoError(t, op.Check(), "usable at once, though the leader committed it")
		state := func() (operations.State, fsm.ExclusiveLease) { return operations.StateOf(o.node.View().View, scope) }
		f.eventually(func() bool { s, _ := state(); return s == operations.Held })
		others := operations.New(o.node, nil)
		_, err = others.Begin(t.Context(), operations.Request{Scope: scope})
		require.ErrorIs(t, err, operations.ErrHeld)

		m.close()
		m.start()
		f.eventually(func() bool { s, _ := state(); return s == operations.Unknown })
		_, x := state()
		require.Equal(t, op.Epoch(), x.Epoch)
		next, err := others.Begin(t.Context(), operations.Request{Scope: scope, Abandoned: x.Epoch})
		require.NoError(t, err)
		require.Greater(t, next.Epoch(), op.Epoch())
		require.ErrorIs(t, next.Complete(t.Context()), operations.ErrUninspected)
		require.NoError(t, next.Inspect(t.Context(), func(context.Context) error { return nil }))
		require.NoError(t, next.Complete(t.Context()))
		f.eventually(func() bool {
			s, _ := operations.StateOf(leader.node.View().View, scope)
			return s == operations.Free
		})
	})
}
