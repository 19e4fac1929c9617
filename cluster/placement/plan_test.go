// Tests of single plans: who may plan, what memory is kept, how the back-off grows.

package placement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestOnlyTheLeaderPlans(t *testing.T) {
	s := newSim(t, 3)
	in := s.input()
	in.Self = s.order[0]
	cmds, _ := Plan(in)
	require.Empty(t, cmds, "before any leadership")

	s.elect(1)
	in = s.input()
	in.Self = s.order[1]
	cmds, next := Plan(in)
	require.Empty(t, cmds)
	require.Equal(t, in.Backoff, next)
}

func TestCommandsCarryExactExpectations(t *testing.T) {
	s := newSim(t, 3)
	s.elect(1)
	cmds, _ := Plan(s.input())
	require.Len(t, cmds, 4)
	m, _ := s.state.View().Member(s.order[0])
	require.Equal(t, fsm.AssignRole{Leader: s.state.View().LeaderEpoch, Role: fsm.SchedulerLeader, Owner: m.Node, Incarnation: m.Incarnation}, cmds[0])

	s.settle()
	s.elect(2)
	cmds, _ = Plan(s.input())
	require.Len(t, cmds, 4)
	for _, c := range cmds {
		a := c.(fsm.AssignRole)
		require.Equal(t, s.state.View().Role(a.Role).Epoch, a.ExpectedEpoch)
		require.NotZero(t, a.ExpectedEpoch)
	}
}

func TestBackoffDoublesAndResets(t *testing.T) {
	s := newSim(t, 1)
	s.elect(1)
	s.settle()
	var waits []time.Duration
	for range 9 {
		s.giveUp(fsm.SchedulerLeader)
		failed := s.now
		for s.owner(fsm.SchedulerLeader) == 0 {
			s.run(step)
		}
		waits = append(waits, s.now.Sub(failed).Truncate(time.Second))
	}
	sec := time.Second
	require.Equal(t, []time.Duration{sec, 2 * sec, 4 * sec, 8 * sec, 16 * sec, 32 * sec, 60 * sec, 60 * sec, 60 * sec}, waits)

	s.run(BackoffReset)
	s.giveUp(fsm.SchedulerLeader)
	s.settle()
	delays := s.memory.Delays(s.now)
	require.Len(t, delays, 1)
	require.Equal(t, Delay{Role: fsm.SchedulerLeader, Node: s.order[0], Failures: 1, Until: s.now.Add(time.Second)}, delays[0])
}

// TestNoGrantClimbsOverTheDatabaseFence: a role whose fence is above the
// committed epoch gets no further epoch, on no node and under no later leader.
func TestNoGrantClimbsOverTheDatabaseFence(t *testing.T) {
	s := newSim(t, 3)
	s.elect(1)
	s.settle()
	g := s.state.View().Role(fsm.SchedulerLeader)
	s.apply(fsm.ReleaseRole{Role: g.Role, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: cluster.CodeDatabaseAhead})
	s.run(2 * BackoffMax)
	s.elect(2)
	s.run(2 * BackoffMax)
	require.Equal(t, fsm.RoleGrant{Role: g.Role, Epoch: g.Epoch}, s.state.View().Role(g.Role))
	require.Equal(t, 2, s.owner(fsm.ReleaseCoordinator), "other roles go on")
}

func TestMemoryIsOfOneLeadership(t *testing.T) {
	s := newSim(t, 1)
	s.elect(1)
	s.settle()
	s.giveUp(fsm.SchedulerLeader)
	s.settle()
	require.NotEmpty(t, s.memory.Delays(s.now))
	memory := s.memory
	s.elect(1)
	s.memory = memory
	s.settle()
	require.Empty(t, s.memory.Delays(s.now), "a memory of another leadership is void")
	require.Equal(t, 1, s.owner(fsm.SchedulerLeader))
}

// TestFollowersMissNothingAtTheEdges: fresh and silent share their bound with
// what the owner does on its own: it revokes at cluster.ConfirmationBound.
func TestFollowersMissNothingAtTheEdges(t *testing.T) {
	require.Less(t, cluster.ConfirmationBound, cluster.OwnerSilence, "revocation comes before vacating")
	s := newSim(t, 2)
	s.node(1).pg = false
	s.elect(1)
	s.run(time.Second)
	require.Equal(t, all(2), s.owners())
	in := s.input()
	in.Now = in.Now.Add(cluster.OwnerSilence)
	cmds, _ := Plan(in)
	require.Empty(t, cmds, "exactly the bound is not yet silence")
	in.Now = in.Now.Add(time.Nanosecond)
	cmds, _ = Plan(in)
	require.Len(t, cmds, 4)
}

func TestPlanIgnoresReportsOfAnEarlierProcess(t *testing.T) {
	s := newSim(t, 2)
	s.elect(1)
	in := s.input()
	for i := range in.Reports {
		in.Reports[i].Incarnation = id[fsm.IncarnationID](99)
	}
	in.Now = in.Now.Add(StartWait)
	cmds, _ := Plan(in)
	require.Empty(t, cmds)
}

func TestTheLeaderNeedsNoPingFromItself(t *testing.T) {
	s := newSim(t, 3)
	s.elect(1)
	s.settle()
	in := s.input()
	in.Reports = in.Reports[1:]
	in.Now = in.Now.Add(2 * cluster.OwnerSilence)
	cmds, _ := Plan(in)
	require.Empty(t, cmds)
}

func TestPlanDoesNotChangeItsInput(t *testing.T) {
	s := newSim(t, 2)
	s.elect(1)
	s.settle()
	s.giveUp(fsm.SchedulerLeader)
	s.settle()
	s.giveUp(fsm.ReleaseCoordinator)
	in := s.input()
	before := in.Backoff.Delays(in.Now)
	_, next := Plan(in)
	require.Equal(t, before, in.Backoff.Delays(in.Now))
	require.Len(t, next.Delays(in.Now), len(before)+1)
}

// TestOnlyTheCurrentGrantCountsAsActive: a report of an earlier epoch, or of an
// earlier process, does not show that the grant of now is active.
func TestOnlyTheCurrentGrantCountsAsActive(t *testing.T) {
	for name, spoil := range map[string]func(r *cluster.NodeReport){
		"epoch": func(r *cluster.NodeReport) {
			for i := range r.Roles {
				r.Roles[i].Epoch--
			}
		},
		"process": func(r *cluster.NodeReport) { r.Incarnation = id[fsm.IncarnationID](99) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, 1)
			s.elect(1)
			s.settle()
			plan := func() (cmds []fsm.Command) {
				in := s.input()
				spoil(&in.Reports[0])
				cmds, s.memory = Plan(in)
				return cmds
			}
			for elapsed := time.Duration(0); elapsed <= cluster.InactiveBound; elapsed += time.Second {
				require.Empty(t, plan())
				s.now = s.now.Add(time.Second)
			}
			require.Len(t, plan(), 4)
		})
	}
}

// TestSettled: a fleet where the leader has everything is settled; one fact less, and it is not.
func TestSettled(t *testing.T) {
	for name, upset := range map[string]func(s *sim){
		"":                   func(*sim) {},
		"another leader":     func(s *sim) { s.elect(2) },
		"a vacant role":      func(s *sim) { s.giveUp(fsm.SchedulerLeader) },
		"no PostgreSQL":      func(s *sim) { s.node(1).pg = false },
		"the leader is left": func(s *sim) { s.memberState(1, fsm.Draining) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, 3)
			s.elect(1)
			s.settle()
			upset(s)
			require.Equal(t, name == "", Settled(s.input()))
		})
	}
	s := newSim(t, 3)
	for n := range 3 {
		s.node(n + 1).runs = []fsm.Role{fsm.SchedulerLeader}
	}
	s.elect(1)
	s.settle()
	require.True(t, Settled(s.input()), "nobody can run the other three")
}
