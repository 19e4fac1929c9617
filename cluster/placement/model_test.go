// The planner as a machine under rapid: rival leaders with old views, reports in any order, and how much may move.

package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// shuffled is the same input with its reports in another order.
func shuffled(t *rapid.T, in Input) Input {
	in.Reports = rapid.Permutation(in.Reports).Draw(t, "reports")
	return in
}

// TestPlanHasNoOrder: the order in which nodes reported decides nothing, and
// neither does any order of maps, however often the plan is made.
func TestPlanHasNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, rapid.IntRange(2, 5).Draw(t, "voters"))
		s.elect(1)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			upset(t, s)
			in := s.input()
			want, memory := Plan(in)
			for range 3 {
				got, next := Plan(shuffled(t, in))
				require.Equal(t, want, got)
				require.Equal(t, memory, next)
			}
			s.run(step)
		}
	})
}

// TestUpsetOfOthersMovesNothing: whatever becomes of nodes that own nothing and
// do not lead, no role moves.
func TestUpsetOfOthersMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, rapid.IntRange(2, 5).Draw(t, "voters"))
		s.elect(1)
		s.run(time.Second)
		require.Equal(t, all(1), s.owners())
		before := s.state.View().Epoch
		for range rapid.IntRange(1, 20).Draw(t, "upsets") {
			n := rapid.IntRange(2, len(s.order)).Draw(t, "node")
			x := s.node(n)
			switch rapid.IntRange(0, 3).Draw(t, "upset") {
			case 0:
				x.alive = !x.alive
			case 1:
				x.pg = !x.pg
			case 2:
				x.runs = rapid.SampledFrom([][]fsm.Role{fsm.Roles(), {}, {fsm.SchedulerLeader}}).Draw(t, "runs")
			case 3:
				m, _ := s.state.View().Member(s.order[n-1])
				s.apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, Incarnation: id[fsm.IncarnationID](1000 + s.index)})
			}
			d := rapid.SampledFrom([]time.Duration{step, time.Second, 10 * time.Second}).Draw(t, "for")
			s.runEvery(max(step, d/10), d)
		}
		require.Equal(t, before, s.state.View().Epoch, "%s", s.history.String())
	})
}

// TestOneUpsetMovesEachRoleOnce: after one fault a role is assigned at most once,
// unless it is given up again where it went.
func TestOneUpsetMovesEachRoleOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, rapid.IntRange(2, 5).Draw(t, "voters"))
		s.elect(1)
		s.runEvery(time.Second, 3*time.Second)
		victim := rapid.IntRange(1, len(s.order)).Draw(t, "victim")
		switch rapid.IntRange(0, 3).Draw(t, "fault") {
		case 0:
			s.node(victim).pg = false
		case 1:
			s.memberState(victim, fsm.Draining)
		case 2:
			s.elect(victim)
		case 3:
			next := victim%len(s.order) + 1
			s.node(victim).alive = false
			s.elect(next)
		}
		for range 40 { // twenty seconds, so that every patience has run out
			before := s.state.View().Epoch
			s.settle()
			require.LessOrEqual(t, s.state.View().Epoch, before+fsm.Epoch(len(fsm.Roles())))
			s.now = s.now.Add(5 * step)
		}
		for _, role := range fsm.Roles() {
			n := strings.Count(s.history.String(), "assign  "+role.String())
			require.GreaterOrEqual(t, n, 1)
			require.LessOrEqual(t, n, 2, "%s was assigned %d times, one of them at the start:\n%s", role, n, s.history.String())
		}
	})
}

// leadership is one node that plans: on a view that may be old, until it hears of a newer leader.
type leadership struct {
	self   fsm.NodeID
	since  time.Time
	view   fsm.View // the newest it has seen
	memory Backoff
	plan   []fsm.Command // on its way
}

// TestRivalLeaders: a leader that was paused, or cut off, plans on its old view
// while its successor does. In whatever order their commands arrive, no command of
// an ended leadership is accepted, no command written for one state is accepted
// in another, and every accepted assignment is to a process that was well when the
// plan was made.
func TestRivalLeaders(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, 3)
		s.elect(1)
		leaders := []*leadership{{self: s.leader, since: s.now, view: s.state.View()}}
		t.Repeat(map[string]func(*rapid.T){
			"upset": func(t *rapid.T) {
				before := s.leader
				term := s.term
				upset(t, s)
				if s.leader != before || s.term != term {
					leaders = append(leaders, &leadership{self: s.leader, since: s.now, view: s.state.View()})
				}
			},
			"time passes": func(t *rapid.T) {
				s.now = s.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "steps")) * step)
			},
			"a leader sees the newest view": func(t *rapid.T) {
				rapid.SampledFrom(leaders).Draw(t, "leader").view = s.state.View()
			},
			"a leader plans": func(t *rapid.T) {
				l := rapid.SampledFrom(leaders).Draw(t, "leader")
				in := Input{View: l.view, Self: l.self, Reports: s.reports(), Now: s.now, LeadingSince: l.since, Backoff: l.memory}
				l.plan, l.memory = Plan(in)
				for _, c := range l.plan {
					if a, ok := c.(fsm.AssignRole); ok {
						requireEligible(t, in, a)
					}
				}
				if l.view.Leader != l.self {
					require.Empty(t, l.plan, "a node plans under another's leadership")
				}
			},
			"a command arrives": func(t *rapid.T) {
				l := rapid.SampledFrom(leaders).Draw(t, "leader")
				if len(l.plan) == 0 {
					return // nothing is on its way
				}
				i := rapid.IntRange(0, len(l.plan)-1).Draw(t, "which")
				c := l.plan[i]
				if !rapid.Bool().Draw(t, "again") {
					l.plan = slices.Delete(slices.Clone(l.plan), i, i+1)
				}
				before := s.state.View()
				s.index++
				res, err := s.state.Apply(s.index, s.term, fsm.Proposal{Request: id[fsm.RequestID](s.index), Command: c})
				if err != nil {
					refused++
					return
				}
				accepted++
				requireInOrder(t, before, s.state.View(), c, res)
			},
			"": func(t *rapid.T) {
				v := s.state.View()
				for _, g := range v.Roles {
					m, member := v.Member(g.Owner)
					require.True(t, g.Vacant() || member && m.Incarnation == g.Incarnation, "%s is owned by a process that is no member", g.Role)
				}
			},
		})
	})
	require.Positive(t, accepted)
	require.Positive(t, refused, "no rival was ever refused")
	t.Logf("%d accepted, %d refused", accepted, refused)
}

// requireInOrder: an accepted command is of the current leadership, and was written for this very state of its role.
func requireInOrder(t *rapid.T, before, after fsm.View, c fsm.Command, res fsm.Result) {
	switch c := c.(type) {
	case fsm.AssignRole:
		require.Equal(t, before.LeaderEpoch, c.Leader)
		require.Equal(t, before.Role(c.Role).Epoch, c.ExpectedEpoch)
		require.Greater(t, res.Epoch, c.ExpectedEpoch)
		m, _ := before.Member(c.Owner)
		require.Equal(t, []any{fsm.Voter, fsm.Active, c.Incarnation}, []any{m.Role, m.State, m.Incarnation})
	case fsm.ReleaseRole:
		require.Equal(t, before.LeaderEpoch, c.Leader)
		require.True(t, before.Role(c.Role).HeldBy(c.Node, c.Incarnation))
		require.True(t, after.Role(c.Role).Vacant())
	default:
		require.Failf(t, "a plan holds assignments and releases only", "%s", c.Kind())
	}
}

// TestUnhealthyIsExcluded: a node is given nothing while its newest report is old,
// of another process, without PostgreSQL or without the role, one by one and together.
func TestUnhealthyIsExcluded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t, 2)
		s.elect(1)
		in := s.input()
		sick := &in.Reports[slices.IndexFunc(in.Reports, func(r cluster.NodeReport) bool { return r.Node == s.order[0] })]
		faults := []func(){
			func() { sick.Received = in.Now.Add(-ReportFresh) },
			func() { sick.Incarnation = id[fsm.IncarnationID](99) },
			func() { sick.PGWritable = false },
			func() { sick.RunnableRoles = nil },
		}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(faults)-1), 1, -1, rapid.ID[int]).Draw(t, "faults") {
			faults[i]()
		}
		in.LeadingSince = in.Now.Add(-StartWait)
		cmds, _ := Plan(in)
		require.Len(t, cmds, len(fsm.Roles()))
		for _, c := range cmds {
			require.Equal(t, s.order[1], c.(fsm.AssignRole).Owner)
		}
	})
}
