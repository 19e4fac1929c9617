// What a caller is told of a proposal that was tried more than once.

package raftnode

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// TestOnlyVerdictsSettleAnUnknownOutcome: after an attempt that may have been
// committed, or still comes to the log, nothing but the state machine's own refusal
// for a reason that lasts makes the outcome certain.
func TestOnlyVerdictsSettleAnUnknownOutcome(t *testing.T) {
	verdict := func(c fsm.RejectCode) error { return cluster.FromRejection(&fsm.Rejection{Code: c}) }
	transported := func(k cluster.Kind, code string) error { return &cluster.Error{Kind: k, Code: code} }
	for _, c := range []struct {
		err     error
		certain bool
	}{
		{verdict(fsm.RejectStaleEpoch), true},
		{verdict(fsm.RejectStaleLeader), true},
		{verdict(fsm.RejectNotOwner), true},
		{verdict(fsm.RejectIncarnation), true},
		{verdict(fsm.RejectInitialised), true},
		{verdict(fsm.RejectConfig), true},
		{verdict(fsm.RejectRemoved), true},
		{verdict(fsm.RejectInvalid), true},
		// An attempt on its way may be appended when these have passed.
		{verdict(fsm.RejectUninitialised), false},
		{verdict(fsm.RejectHeld), false},
		{verdict(fsm.RejectAbandoned), false},
		{verdict(fsm.RejectMember), false},
		{verdict(fsm.RejectBound), false},
		{verdict(fsm.RejectUnsupported), false},
		// The second attempt meets a leader that does not know this node yet, or is of an older build.
		{transported(cluster.JoinRejected, "FY-NET-012"), false},
		{transported(cluster.IncompatibleVersion, "FY-NET-026"), false},
		{transported(cluster.TransportFailure, "FY-NET-015"), false},
		{transported(cluster.MembershipConflict, "FY-NET-010"), false},
		{transported(cluster.Fenced, "FY-NET-011"), false},
		{ErrMalformed, false},
		{cluster.ErrNotLeader, false},
		{cluster.ErrNoQuorum, false},
		{cluster.ErrEngineClosed, false},
		{cluster.ErrStoreFailed, false},
		{cluster.ErrNewerBuild, false},
		{ErrStoreStalled, false},
		{ErrApplyStalled, false},
		{ErrHandoverStuck, false},
		{ErrSuperseded, false},
	} {
		release, start := fsm.ReleaseRole{}, fsm.StartExclusiveOperation{}
		require.False(t, cluster.OutcomeUnknown(withOutcome(c.err, false, release)), "%v", c.err)
		require.Equal(t, !c.certain, cluster.OutcomeUnknown(withOutcome(c.err, true, release)), "%v", c.err)
		require.True(t, cluster.OutcomeUnknown(withOutcome(c.err, true, start)), "it expects no epoch: %v", c.err)
	}
}

// TestFailedEngineKnowsNoOutcome: a leader that is cut off appends a proposal, loses
// its leadership, and then its engine ends while the proposal is tried again: the entry
// is on its disk, and may be committed yet.
func TestFailedEngineKnowsNoOutcome(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		leader.connect(false)
		answer := make(chan error, 1)
		go func() {
			_, err := leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.ReleaseRole{
				Role: fsm.SchedulerLeader, ExpectedEpoch: 1, Node: leader.id, Incarnation: leader.node.cfg.Self.Incarnation,
			}})
			answer <- err
		}()
		<-time.After(4 * fast.HeartbeatTimeout)
		_, leads := leader.node.Leadership()
		require.False(t, leads)
		require.Empty(t, answer, "it is tried again")
		leader.node.fail(cluster.ErrStoreFailed)
		err := <-answer
		require.ErrorIs(t, err, cluster.ErrStoreFailed)
		require.True(t, cluster.OutcomeUnknown(err), "%v", err)
	})
}

// TestHungLeaderHoldsNoProposal: what was sent to a leader that does not answer is sent
// to the next one as soon as there is one.
func TestHungLeaderHoldsNoProposal(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		old := f.leader()
		follower := f.others(old)[0]
		asked := make(chan struct{})
		f.board.lines[old.id].Handle(transport.FamilyControl, methodPropose, func(ctx context.Context, _ transport.Peer, _ []byte) (any, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		answer := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := follower.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.ReleaseRole{
				Role: fsm.SchedulerLeader, ExpectedEpoch: 1, Node: follower.id, Incarnation: follower.node.cfg.Self.Incarnation,
			}})
			answer <- err
		}()
		<-asked
		old.connect(false)
		err := <-answer
		require.ErrorIs(t, err, cluster.ErrFenced)
		require.False(t, cluster.OutcomeUnknown(err), "%v", err)
		require.Less(t, time.Since(began), cluster.DefaultRequestTimeout/2)
		old.connect(true)
	})
}

// Each kind of request that the library takes has the field by which answer gives it
// an end: an update of the library that renamed it would bring back a wait for ever.
func TestEveryRequestHasAnEnd(t *testing.T) {
	bubble(t, 2, func(t *testing.T, f *fleet) {
		n := f.others(f.leader())[0].node // which refuses most of them, and answers at once
		for name, asked := range map[string]raft.Future{
			"apply":         n.raft.Apply(nil, time.Second),
			"barrier":       n.raft.Barrier(time.Second),
			"configuration": n.raft.AddNonvoter("x", "x", 0, time.Second),
			"hand over":     n.raft.LeadershipTransfer(),
			"prove it":      n.raft.VerifyLeader(),
			"snapshot":      n.raft.Snapshot(),
		} {
			_ = n.answer(asked)
			end := reflect.Indirect(reflect.ValueOf(asked)).FieldByName("ShutdownCh")
			require.True(t, end.IsValid(), name)
			require.Equal(t, reflect.ValueOf(n.ended).Pointer(), end.Pointer(), name)
		}
	})
}
