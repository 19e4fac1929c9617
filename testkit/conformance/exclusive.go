// Exclusive scopes: held once, abandoned with the authority they began under, taken over.

package conformance

import (
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/fsm"
)

func (f *fixture) exclusive() {
	l := f.lead()
	self := f.Self()
	for _, scope := range fsm.Scopes() {
		start := fsm.StartExclusiveOperation{Scope: scope, Owner: self.Node, Incarnation: self.Incarnation}
		if role, coordinated := scope.Coordinator(); coordinated {
			require.Equal(f.T, cluster.Fenced, f.refuse(start).Kind, "without the coordinator's role")
			f.propose(f.assign(l, role, f.View().Role(role).Epoch))
		}
		e := f.propose(start).Epoch
		require.Equal(f.T, f.View().Epoch, e)
		require.ErrorIs(f.T, f.refuse(start), exclusive.ErrHeld)
		state, held := exclusive.StateOf(f.View().View, scope)
		require.Equal(f.T, exclusive.Held, state)
		require.Equal(f.T, e, held.Epoch)
		done := fsm.CompleteExclusiveOperation{Scope: scope, Owner: self.Node, Incarnation: self.Incarnation, Epoch: e}
		if role, coordinated := scope.Coordinator(); coordinated {
			f.propose(f.renew(role, f.View().Role(role).Epoch))
			state, _ = exclusive.StateOf(f.View().View, scope)
			require.Equal(f.T, exclusive.Unknown, state, "the role's epoch under which it began is over")
			require.Equal(f.T, cluster.Fenced, f.refuse(done).Kind)
			require.ErrorIs(f.T, f.refuse(start), exclusive.ErrAbandoned)
			start.Abandoned = e
			done.Epoch = f.propose(start).Epoch
		}
		f.propose(done)
		state, _ = exclusive.StateOf(f.View().View, scope)
		require.Equal(f.T, exclusive.Free, state)
	}
}
