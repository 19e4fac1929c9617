// Removal: a voter that is gone for good does not stop its own removal, and afterwards stops nothing.

package raftnode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemoveServerThatIsGone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		gone := f.others(leader)[0]
		gone.close()
		next := f.add()
		next.start()
		f.admit(leader, next)
		require.Error(t, leader.node.Settled(), "the voter that is gone has not stored the change before")

		require.Error(t, leader.node.RemoveServer(t.Context(), leader.id), "a leader cannot remove itself")
		require.NoError(t, leader.node.RemoveServer(t.Context(), gone.id))
		require.False(t, leader.node.Suffrage().Contains(gone.id))
		require.NoError(t, leader.node.RemoveServer(t.Context(), gone.id), "again")
		require.NoError(t, leader.node.Settled())
		f.promote(leader, next)
		require.Contains(t, leader.node.Suffrage().Voters, next.id)
	})
}

func TestRemoveServerNeedsTheOthers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		others := f.others(leader)
		others[0].close()
		next := f.add()
		next.start()
		f.admit(leader, next)
		require.Error(t, leader.node.RemoveServer(t.Context(), others[1].id), "a voter that stays has not stored the change before")
		require.Contains(t, leader.node.Suffrage().Voters, others[1].id)
	})
}
