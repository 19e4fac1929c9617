// The scope of collection, held against a real state machine.

package artifact

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/exclusive"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestAbandonedCollectionIsTakenOver(t *testing.T) {
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	commit := func(c fsm.Command) {
		t.Helper()
		_, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
		require.NoError(t, err)
	}
	self := b.Self()
	commit(fsm.BumpEpoch{Term: 1, Node: self.Node, Incarnation: self.Incarnation})
	other := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Name: "other", Role: fsm.Learner, Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}}
	commit(fsm.AddLearner{ExpectedConfig: b.View().Config, Member: other})
	commit(fsm.UpdateMember{Node: other.Node, ExpectedIncarnation: other.Incarnation, State: fsm.Active})
	commit(fsm.StartExclusiveOperation{Scope: fsm.GlobalGcCoordination, Owner: other.Node, Incarnation: other.Incarnation})

	begin := Exclusively(exclusive.New(b, nil), b.View)
	_, err = begin(t.Context())
	require.ErrorIs(t, err, exclusive.ErrHeld)
	require.True(t, heldElsewhere(err))

	commit(fsm.UpdateMember{Node: other.Node, ExpectedIncarnation: other.Incarnation, Incarnation: cluster.NewIncarnationID()})
	held, err := begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.Check())
	_, err = begin(t.Context())
	require.ErrorIs(t, err, exclusive.ErrHeld, "also by this very process")
	require.NoError(t, held.Complete(t.Context()))
	require.ErrorIs(t, held.Check(), cluster.ErrFenced)
	held, err = begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.Complete(t.Context()))
}

// unreachable is an engine that cannot propose while down.
type unreachable struct {
	*local.Backend
	down bool
}

func (u *unreachable) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	if u.down {
		return cluster.Commit{}, cluster.ErrNoQuorum
	}
	return u.Backend.Propose(ctx, p)
}

// A scope that could not be freed does not keep this process from collecting ever again.
func TestScopeThatWasNotFreedIsUsedAgain(t *testing.T) {
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	self := b.Self()
	_, err = b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.BumpEpoch{Term: 1, Node: self.Node, Incarnation: self.Incarnation}})
	require.NoError(t, err)
	engine := &unreachable{Backend: b}
	begin := Exclusively(exclusive.New(engine, nil), b.View)
	held, err := begin(t.Context())
	require.NoError(t, err)
	engine.down = true
	require.ErrorIs(t, held.Complete(t.Context()), cluster.ErrNoQuorum)
	again, err := begin(t.Context())
	require.NoError(t, err, "it is held still, and is this process's own")
	require.NoError(t, again.Check())
	engine.down = false
	require.NoError(t, again.Complete(t.Context()))
	state, _ := exclusive.StateOf(b.View().View, fsm.GlobalGcCoordination)
	require.Equal(t, exclusive.Free, state)
}
