// The coordination leader: its epoch comes first, its plans follow, it ends with its term.

package actors

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// planFunc is a planner made of a function.
type planFunc func(cluster.View) []fsm.Command

func (f planFunc) Plan(v cluster.View, _ []cluster.NodeReport, _ time.Time) []fsm.Command {
	return f(v)
}

func (planFunc) Settled(cluster.View, []cluster.NodeReport) bool { return false }

// grantHere assigns the role to this node while it is vacant.
func grantHere(v cluster.View) []fsm.Command {
	g := v.Role(role)
	if !g.Vacant() && g.Epoch > v.LeaderEpoch.Epoch {
		return nil
	}
	return []fsm.Command{fsm.AssignRole{Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: g.Epoch, Owner: member(1).Node, Incarnation: member(1).Incarnation}}
}

func planWith(f planFunc) func(*Config) {
	return func(c *Config) { c.NewPlanner = func() Planner { return f } }
}

func TestLeaderLifecycleBeginsThenPlans(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.settle(time.Second)
		require.Empty(t, h.backend.proposed(), "nobody leads here")
		term := h.backend.lead()
		epoch := h.active(role)
		v := h.backend.view()
		require.Equal(t, term, v.LeaderEpoch.Term)
		require.Greater(t, epoch, v.LeaderEpoch.Epoch)
		h.settle(time.Second)
		require.Len(t, h.backend.proposed(), 2, "one leadership and one grant, though it planned at every tick")

		next := h.backend.lead()
		h.eventually("the next leadership", func() bool { return h.backend.view().LeaderEpoch.Term == next })
		require.Greater(t, h.active(role), epoch, "a leader change takes a new epoch for every role")

		h.backend.follow()
		h.eventually("no leader", func() bool { return h.sys.lead.current() == nil })
	}, &probe{role: role})
}

// Who is elected before its new incarnation is committed proposes nothing: each
// refusal would be an entry, and wake it for the next.
func TestLeaderWaitsUntilItIsAnnounced(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		m, ok := h.backend.view().Member(member(1).Node)
		require.True(t, ok)
		announce := func(from, to fsm.IncarnationID) {
			h.backend.commit(fsm.UpdateMember{
				Node: m.Node, ExpectedIncarnation: from, Incarnation: to, Name: m.Name, Endpoint: m.Endpoint, Agents: m.Agents, Protocol: m.Protocol, Build: m.Build,
			})
		}
		earlier := member(2).Incarnation
		announce(m.Incarnation, earlier)
		h.backend.lead()
		h.settle(time.Second)
		require.Empty(t, h.backend.proposed())
		announce(earlier, m.Incarnation)
		h.active(role)
	}, &probe{role: role})
}

// Who is never announced keeps the office from nobody.
func TestLeaderThatIsNeverAnnouncedStepsDown(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		m, _ := h.backend.view().Member(member(1).Node)
		h.backend.commit(fsm.UpdateMember{
			Node: m.Node, ExpectedIncarnation: m.Incarnation, Incarnation: member(2).Incarnation, Name: m.Name, Endpoint: m.Endpoint, Agents: m.Agents, Protocol: m.Protocol, Build: m.Build,
		})
		h.backend.lead()
		h.settle(beginBound)
		require.Empty(t, h.backend.steppedDown())
		h.settle(2 * time.Second)
		require.Len(t, h.backend.steppedDown(), 1)
		require.Empty(t, h.backend.proposed())
	}, &probe{role: role})
}

// Who is no member appends nothing, since each refusal is an entry, and keeps the office from nobody.
func TestLeaderThatIsNoMemberStepsDown(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.commit(fsm.RemoveMember{ExpectedConfig: h.backend.view().Config, Node: member(1).Node, Force: true})
		h.backend.lead()
		h.settle(beginBound)
		require.Empty(t, h.backend.steppedDown())
		h.settle(2 * time.Second)
		require.Len(t, h.backend.steppedDown(), 1)
		h.settle(beginBound)
		require.Len(t, h.backend.steppedDown(), 2, "it is asked again")
		require.Empty(t, h.backend.proposed())
	}, &probe{role: role})
}

// Nor does one whose epoch is refused for whatever reason.
func TestLeaderWhoseEpochIsRefusedStepsDown(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.refuseWith(&cluster.Error{Kind: cluster.Fenced, Code: "FY-TEST-004"})
		h.backend.lead()
		h.settle(beginBound)
		require.Empty(t, h.backend.steppedDown())
		h.settle(2 * time.Second)
		require.Len(t, h.backend.steppedDown(), 1)
	}, &probe{role: role})
}

// With nobody to hand over to it goes on until it can begin.
func TestOnlyMemberIsNotAskedToHandOver(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.commit(fsm.RemoveMember{ExpectedConfig: h.backend.view().Config, Node: member(2).Node, Force: true})
		h.backend.refuseWith(&cluster.Error{Kind: cluster.Fenced, Code: "FY-TEST-004"})
		h.backend.lead()
		h.settle(2*beginBound + time.Second)
		require.Greater(t, len(h.backend.proposed()), 100)
		h.backend.refuseWith(nil)
		h.active(role)
		require.Empty(t, h.backend.steppedDown())
	}, &probe{role: role})
}

// A refusal wakes the leader too: it rests before it proposes again.
func TestLeaderRestsAfterARefusal(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.refuseWith(&cluster.Error{Kind: cluster.Fenced, Code: "FY-TEST-004"})
		h.backend.lead()
		for range 1000 {
			h.backend.hints.Notify()
			h.settle(time.Millisecond)
		}
		require.InDelta(t, time.Second/refusedRest, len(h.backend.proposed()), 5)
	}, &probe{role: role})
}

// An attempt with an unknown outcome is retried under its request id: one leadership, one epoch.
func TestLeaderRetriesItsBeginning(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.refuseWith(&cluster.Error{Kind: cluster.TransportFailure, Code: "FY-TEST-004", OutcomeUnknown: true})
		before := h.backend.view().Epoch
		h.backend.lead()
		h.settle(time.Second)
		require.Greater(t, len(h.backend.proposed()), 3)
		require.Zero(t, len(slices.Compact(h.backend.proposed()))-1, "the same command each time")
		h.backend.refuseWith(nil)
		h.active(role)
		require.Equal(t, before+2, h.backend.view().Epoch)
	}, &probe{role: role})
}

// A planner that panics restarts the leader within the budget; beyond it another voter leads.
func TestLeaderLifecycleBeyondBudgetStepsDown(t *testing.T) {
	var calls atomic.Int32
	broken := func(cluster.View) []fsm.Command { calls.Add(1); panic("test panic") }
	bubble(t, planWith(broken), func(t *testing.T, h *host) {
		h.backend.lead()
		h.eventually("stepped down", func() bool { return len(h.backend.steppedDown()) == 1 })
		require.Contains(t, h.backend.steppedDown()[0], "test panic")
		require.EqualValues(t, 4, calls.Load())
		h.settle(5 * time.Second)
		require.EqualValues(t, 4, calls.Load(), "it pauses when no other voter took over")
		h.eventually("another try", func() bool { return calls.Load() > 4 })
		require.Empty(t, h.exits)
	})
}

func TestCrashedLeaderGoesOn(t *testing.T) {
	bubble(t, planWith(grantHere), func(t *testing.T, h *host) {
		h.backend.lead()
		h.active(role)
		first := h.sys.lead.current()
		h.crash(first.path())
		h.eventually("a new leader actor", func() bool {
			l := h.sys.lead.current()
			return l != nil && l != first
		})
		h.backend.vacate(role)
		h.active(role)
		info, _ := h.entry(pathLeader)
		require.Equal(t, 1, info.Restarts)
	}, &probe{role: role})
}
