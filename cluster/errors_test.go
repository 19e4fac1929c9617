// The error model: nine kinds, one retry rule each, unchanged over hops.

package cluster_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// TestErrorMapping: what a caller may do after each kind of error (§314, §315).
func TestErrorMapping(t *testing.T) {
	kinds := []struct {
		kind  cluster.Kind
		name  string
		retry bool
	}{
		{cluster.NotLeader, "NotLeader", true},
		{cluster.NoQuorum, "NoQuorum", true},
		{cluster.Fenced, "Fenced", false},
		{cluster.MembershipConflict, "MembershipConflict", false},
		{cluster.JoinRejected, "JoinRejected", false},
		{cluster.IncompatibleVersion, "IncompatibleVersion", false},
		{cluster.StorageFailure, "StorageFailure", false},
		{cluster.TransportFailure, "TransportFailure", true},
		{cluster.Internal, "Internal", false},
	}
	require.Len(t, kinds, 9)
	for _, tc := range kinds {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.name, tc.kind.String())
			require.Equal(t, tc.retry, tc.kind.Retryable())
			err := fmt.Errorf("propose: %w", &cluster.Error{Kind: tc.kind, Code: "FY-TEST-001"})
			require.Equal(t, tc.kind, cluster.KindOf(err))
		})
	}
	require.Equal(t, cluster.Internal, cluster.KindOf(errors.New("anything else")))
	require.Equal(t, "Kind(77)", cluster.Kind(77).String())
}

// TestFencedError: FENCED is one typed error with one wire code, unlike every other (§95).
func TestFencedError(t *testing.T) {
	require.Equal(t, "FENCED", cluster.ErrFenced.Code)
	wrapped := fmt.Errorf("lease: %w", cluster.ErrFenced.Wrap(errLost, "SchedulerLeader epoch %d may not write", 7))
	require.ErrorIs(t, wrapped, cluster.ErrFenced)
	require.ErrorIs(t, wrapped, errLost)
	require.Equal(t, "lease: FENCED: SchedulerLeader epoch 7 may not write: connection reset", wrapped.Error())
	for _, other := range []*cluster.Error{cluster.ErrNotOwner, cluster.ErrUnconfirmed, cluster.ErrNotLeader, cluster.ErrNoQuorum, cluster.ErrNotRenewed, cluster.ErrClosing} {
		require.NotErrorIs(t, other, cluster.ErrFenced)
	}
	require.Equal(t, "this epoch may not write", cluster.ErrFenced.Message, "wrapping changes a copy")
}

// TestFromRejection: every rejection of the state machine has a kind, and its outcome is known.
func TestFromRejection(t *testing.T) {
	want := map[fsm.RejectCode]cluster.Kind{
		fsm.RejectInvalid:       cluster.Internal,
		fsm.RejectUninitialised: cluster.MembershipConflict,
		fsm.RejectInitialised:   cluster.MembershipConflict,
		fsm.RejectStaleEpoch:    cluster.Fenced,
		fsm.RejectStaleLeader:   cluster.Fenced,
		fsm.RejectIncarnation:   cluster.Fenced,
		fsm.RejectNotOwner:      cluster.Fenced,
		fsm.RejectHeld:          cluster.MembershipConflict,
		fsm.RejectConfig:        cluster.MembershipConflict,
		fsm.RejectMember:        cluster.MembershipConflict,
		fsm.RejectRemoved:       cluster.JoinRejected,
		fsm.RejectBound:         cluster.MembershipConflict,
		fsm.RejectAbandoned:     cluster.MembershipConflict,
		fsm.RejectUnsupported:   cluster.IncompatibleVersion,
	}
	codes := map[string]fsm.RejectCode{}
	for code := fsm.RejectCode(1); code.String() != fmt.Sprintf("RejectCode(%d)", code); code++ {
		kind, listed := want[code]
		require.True(t, listed, "%s needs a kind", code)
		e := cluster.FromRejection(&fsm.Rejection{Code: code, Message: "because"})
		require.Equal(t, kind, e.Kind, code)
		require.Equal(t, "because", e.Message)
		require.False(t, e.OutcomeUnknown)
		require.Equal(t, kind == cluster.Fenced, errors.Is(e, cluster.ErrFenced), code)
		if kind != cluster.Fenced {
			require.NotContains(t, codes, e.Code, "%s and %s", code, codes[e.Code])
			codes[e.Code] = code
		}
	}
	require.Equal(t, cluster.Internal, cluster.FromRejection(&fsm.Rejection{Code: 99}).Kind)
}

// TestErrorSurvivesAHop: all fields arrive but the local cause, whose text stays in the message.
func TestErrorSurvivesAHop(t *testing.T) {
	sent := &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-TEST-001", Message: "no answer", Hint: "retry", OutcomeUnknown: true}
	require.Equal(t, sent, cluster.FromWireFields(sent.WireFields()))

	caused := cluster.ErrFenced.Wrap(errLost, "while leasing")
	got := cluster.FromWireFields(caused.WireFields())
	require.ErrorIs(t, got, cluster.ErrFenced)
	require.NoError(t, got.Unwrap())
	require.Equal(t, caused.Error(), got.Error())

	require.Equal(t, cluster.Internal, cluster.FromWireFields(0, "FY-NEW-001", "from a newer build", "", false).Kind)
	require.Equal(t, cluster.Internal, cluster.FromWireFields(200, "FY-NEW-001", "from a newer build", "", false).Kind)
}

// TestGuardStateText: reports carry the states by name, and unknown names are refused.
func TestGuardStateText(t *testing.T) {
	for s := cluster.GuardNone; s <= cluster.GuardRevoked; s++ {
		text, err := s.MarshalText()
		require.NoError(t, err)
		var back cluster.GuardState
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, s, back)
	}
	var s cluster.GuardState
	require.Error(t, s.UnmarshalText([]byte("leading")))
	require.Equal(t, "GuardState(9)", cluster.GuardState(9).String())
}

func TestMintedIDsAreFresh(t *testing.T) {
	seen := map[any]bool{}
	for range 100 {
		for _, id := range []any{cluster.NewClusterID(), cluster.NewNodeID(), cluster.NewIncarnationID(), cluster.NewRequestID()} {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	node := cluster.NewNodeID()
	back, err := fsm.ParseNodeID(node.String())
	require.NoError(t, err)
	require.Equal(t, node, back)
}
