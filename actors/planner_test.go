// The planner that a process places roles with, and that the system needs one.

package actors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// A new leadership owes nothing to what the former one held back.
func TestPlacementForgetsWithTheLeadership(t *testing.T) {
	now := time.Now()
	self, inc := fsm.NodeID{1}, fsm.IncarnationID{1}
	p := NewPlacement(self, func() time.Time { return now })
	// This leadership assigned the role, and its owner gave it up at once.
	v := cluster.View{}
	v.Leader, v.LeaderInc, v.LeaderEpoch = self, inc, fsm.LeaderEpoch{Term: 1, Epoch: 1}
	v.Members = []fsm.Member{{Node: self, Incarnation: inc, Role: fsm.Voter, State: fsm.Active}}
	v.Roles = []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 2}}
	first := p.Begin()
	first.Plan(v, nil, now)
	v.Releases = []fsm.Release{{Role: fsm.SchedulerLeader, Epoch: 2, Node: self, Incarnation: inc, Code: "FY-TEST-001"}}
	first.Plan(v, nil, now)
	require.NotEmpty(t, p.Delays())
	p.Begin()
	require.Empty(t, p.Delays())
}

func TestStartNeedsAPlanner(t *testing.T) {
	bubble(t, nil, func(t *testing.T, h *host) {
		_, err := Start(Config{Trees: h.service, Backend: h.backend})
		require.ErrorContains(t, err, "NewPlanner")
	})
}
