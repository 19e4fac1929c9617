// Property tests: whatever happens to a fleet, every plan is legal, exact, repeatable and calm.

package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// upset changes one thing in the fleet.
func upset(t *rapid.T, s *sim) {
	n := rapid.IntRange(1, len(s.order)).Draw(t, "node")
	x := s.node(n)
	m, member := s.state.View().Member(s.order[n-1])
	switch rapid.IntRange(0, 7).Draw(t, "upset") {
	case 0:
		x.alive = !x.alive || s.order[n-1] == s.leader
	case 1:
		x.pg = !x.pg
	case 2:
		x.starts = !x.starts
	case 3:
		s.elect(n)
		s.node(n).alive = true
	case 4:
		to := map[fsm.MemberState]fsm.MemberState{fsm.Active: fsm.Draining, fsm.Draining: fsm.Active}[m.State]
		if member && to != 0 {
			s.memberState(n, to)
		}
	case 5:
		x.runs = rapid.SampledFrom([][]fsm.Role{fsm.Roles(), {}, {fsm.SchedulerLeader}}).Draw(t, "runs")
	case 6:
		r := rapid.SampledFrom(fsm.Roles()).Draw(t, "role")
		if !s.state.View().Role(r).Vacant() {
			s.giveUp(r)
		}
	case 7:
		s.apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, Incarnation: id[fsm.IncarnationID](1000 + s.index)})
	}
}

// judge plans once and checks the plan on its own.
func judge(t *rapid.T, s *sim) []fsm.Command {
	in := s.input()
	cmds, next := Plan(in)
	again, nextAgain := Plan(in)
	require.Equal(t, cmds, again, "the same input gives the same plan")
	require.Equal(t, next, nextAgain, "and changes nothing it was given")

	if Settled(in) && len(cmds) == 0 {
		requireLasting(t, in)
	}
	planned := map[fsm.Role]bool{}
	for _, c := range cmds {
		switch c := c.(type) {
		case fsm.AssignRole:
			require.False(t, planned[c.Role], "two commands for %s", c.Role)
			planned[c.Role] = true
			requireEligible(t, in, c)
			g := in.View.Role(c.Role)
			require.False(t, g.Owner == c.Owner && g.Epoch > in.View.LeaderEpoch.Epoch, "moved to where it is")
		case fsm.ReleaseRole:
			require.False(t, planned[c.Role], "two commands for %s", c.Role)
			planned[c.Role] = true
			require.NotEmpty(t, c.Code)
			require.NotEmpty(t, c.Reason)
		default:
			require.Failf(t, "unexpected command", "%s", c.Kind())
		}
	}
	s.memory = next
	return cmds
}

// requireLasting: with the same view, neither time nor what others report changes
// a settled plan, but for a role that its owner does not make active.
func requireLasting(t *rapid.T, in Input) {
	own := slices.DeleteFunc(slices.Clone(in.Reports), func(r cluster.NodeReport) bool { return r.Node != in.Self })
	for _, reports := range [][]cluster.NodeReport{in.Reports, own} {
		later := in
		later.Reports, later.Now = reports, in.Now.Add(BackoffMax)
		cmds, _ := Plan(later)
		for _, c := range cmds {
			release, ok := c.(fsm.ReleaseRole)
			require.True(t, ok && release.Code == CodeInactive, "%+v", c)
		}
	}
}

// requireEligible restates the rule independently of the planner.
func requireEligible(t *rapid.T, in Input, c fsm.AssignRole) {
	m, ok := in.View.Member(c.Owner)
	require.True(t, ok)
	require.Equal(t, fsm.Voter, m.Role)
	require.Equal(t, fsm.Active, m.State)
	require.Equal(t, m.Incarnation, c.Incarnation)
	var report *cluster.NodeReport
	for i, r := range in.Reports {
		if r.Node == c.Owner {
			report = &in.Reports[i]
		}
	}
	require.NotNil(t, report, "assigned to a node that has not reported")
	require.Equal(t, m.Incarnation, report.Incarnation)
	require.Less(t, in.Now.Sub(report.Received), time.Second)
	require.True(t, report.PGWritable)
	require.Contains(t, report.RunnableRoles, c.Role)
	if in.Backoff.leadership != in.View.LeaderEpoch.Epoch {
		return // what happened under another leadership is no failure of anything that this one decided
	}
	for _, d := range in.Backoff.Delays(in.Now) {
		require.False(t, d.Role == c.Role && d.Node == c.Owner, "assigned during its back-off")
	}
}

func TestEveryPlanIsLegalAndSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, rapid.IntRange(1, 5).Draw(t, "voters"))
		s.elect(1)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			upset(t, s)
			for range rapid.IntRange(1, 20).Draw(t, "ticks") {
				// At a fixed input the plan runs out within a vacate and an assignment.
				for round := 0; ; round++ {
					cmds := judge(t, s)
					if len(cmds) == 0 {
						break
					}
					require.Less(t, round, 2, "the plan flaps:\n%s", s.history.String())
					for _, c := range cmds {
						s.record(c)
						s.apply(c) // requires acceptance: the expectations are exact
					}
				}
				s.now = s.now.Add(step)
			}
		}
	})
}

// TestEveryRoleIsPlacedInTheEnd: from any mess, a fleet that is well again has
// every role owned, active and of the current leadership within the longest back-off.
func TestEveryRoleIsPlacedInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, 3)
		s.elect(1)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			upset(t, s)
			s.run(step)
		}
		for n := range s.order {
			x := s.node(n + 1)
			x.alive, x.pg, x.starts, x.runs = true, true, true, fsm.Roles()
			if m, _ := s.state.View().Member(s.order[n]); m.State == fsm.Draining {
				s.memberState(n+1, fsm.Active)
			}
		}
		s.runEvery(time.Second, BackoffMax+cluster.InactiveBound+time.Second)
		v := s.state.View()
		for _, r := range fsm.Roles() {
			require.False(t, v.Role(r).Vacant(), "%s is vacant:\n%s", r, s.history.String())
			require.Greater(t, v.Role(r).Epoch, v.LeaderEpoch.Epoch)
		}
		// And then nothing moves any more.
		before := v.Epoch
		s.runEvery(time.Second, 2*time.Minute)
		require.Equal(t, before, s.state.View().Epoch)
	})
}
