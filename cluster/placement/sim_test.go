// A fleet in miniature: nodes that report, a real state machine, a planner whose commands are applied at once.

package placement

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func id[T ~[16]byte](n uint64) T {
	var b [16]byte
	binary.BigEndian.PutUint64(b[8:], n)
	return T(b)
}

// simNode is a node as its reports show it.
type simNode struct {
	alive  bool // sends pings
	pg     bool // can write to PostgreSQL
	runs   []fsm.Role
	starts bool // a role it is given becomes active at once
	last   cluster.NodeReport
	seen   bool // the leader has heard of it
}

// sim steps a fleet of voters; time is virtual and moves in steps of 100 ms.
type sim struct {
	t       require.TestingT
	state   *fsm.State
	nodes   map[fsm.NodeID]*simNode
	order   []fsm.NodeID
	leader  fsm.NodeID
	since   time.Time
	start   time.Time
	now     time.Time
	term    uint64
	index   uint64
	memory  Backoff
	history strings.Builder
}

const step = 100 * time.Millisecond

func newSim(t require.TestingT, voters int) *sim {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &sim{t: t, state: fsm.NewState(), nodes: map[fsm.NodeID]*simNode{}, start: start, now: start}
	for n := 1; n <= voters; n++ {
		m := fsm.Member{
			Node: id[fsm.NodeID](uint64(n)), Incarnation: id[fsm.IncarnationID](uint64(n)),
			Name: fmt.Sprintf("node-%c", 'a'+n-1), Endpoint: fsm.Endpoint(fmt.Sprintf("10.0.0.%d:7443", n)),
			Protocol: fsm.VersionRange{Min: 1, Max: 1},
		}
		if n == 1 {
			s.apply(fsm.InitCluster{ClusterID: id[fsm.ClusterID](1), Name: "sim", Founder: m})
		} else {
			m.Role = fsm.Learner
			s.apply(fsm.AddLearner{ExpectedConfig: s.state.View().Config, Member: m})
			s.apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: fsm.Active})
			s.apply(fsm.PromoteVoter{ExpectedConfig: s.state.View().Config, Node: m.Node})
		}
		s.order = append(s.order, m.Node)
		s.nodes[m.Node] = &simNode{alive: true, pg: true, runs: fsm.Roles(), starts: true}
	}
	return s
}

func (s *sim) node(n int) *simNode { return s.nodes[s.order[n-1]] }

func (s *sim) apply(c fsm.Command) {
	s.index++
	_, err := s.state.Apply(s.index, s.term, fsm.Proposal{Request: id[fsm.RequestID](s.index), Command: c})
	require.NoError(s.t, err, "%s", c.Kind())
}

// elect makes node n the leader of the next term.
func (s *sim) elect(n int) {
	s.term++
	s.leader, s.since, s.memory = s.order[n-1], s.now, Backoff{}
	m, _ := s.state.View().Member(s.leader)
	s.apply(fsm.BumpEpoch{Term: s.term, ExpectedEpoch: s.state.View().LeaderEpoch.Epoch, Node: m.Node, Incarnation: m.Incarnation})
	// A new leader has heard of nobody.
	for _, x := range s.nodes {
		x.seen = false
	}
	s.log("%s leads term %d", s.name(s.leader), s.term)
}

func (s *sim) reports() []cluster.NodeReport {
	var out []cluster.NodeReport
	v := s.state.View()
	for _, n := range s.order {
		x := s.nodes[n]
		m, member := v.Member(n)
		if !member {
			continue
		}
		if x.alive {
			r := cluster.NodeReport{Received: s.now, HealthReport: cluster.HealthReport{
				Node: n, Incarnation: m.Incarnation, PGWritable: x.pg, RunnableRoles: x.runs,
			}}
			for _, g := range v.Roles {
				if g.HeldBy(n, m.Incarnation) && x.starts && x.pg {
					r.Roles = append(r.Roles, cluster.RoleStatus{Role: g.Role, Epoch: g.Epoch, State: cluster.GuardActive})
				}
			}
			x.last, x.seen = r, true
		}
		if x.seen {
			out = append(out, x.last)
		}
	}
	return out
}

func (s *sim) input() Input {
	return Input{View: s.state.View(), Self: s.leader, Reports: s.reports(), Now: s.now, Backoff: s.memory, LeadingSince: s.since}
}

// settle plans and applies until the plan is empty; it must be so soon.
func (s *sim) settle() {
	for range 4 {
		cmds, next := Plan(s.input())
		s.memory = next
		if len(cmds) == 0 {
			return
		}
		for _, c := range cmds {
			s.record(c)
			s.apply(c)
		}
	}
	require.Fail(s.t, "the plan does not settle at a fixed input", "%s", s.history.String())
}

// run lets time pass.
func (s *sim) run(d time.Duration) { s.runEvery(step, d) }

func (s *sim) runEvery(tick, d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(tick) {
		s.settle()
	}
}

func (s *sim) name(n fsm.NodeID) string {
	m, _ := s.state.View().Member(n)
	return m.Name
}

func (s *sim) log(format string, args ...any) {
	fmt.Fprintf(&s.history, "%8s  %s\n", s.now.Sub(s.start), fmt.Sprintf(format, args...))
}

func (s *sim) record(c fsm.Command) {
	switch c := c.(type) {
	case fsm.AssignRole:
		s.log("assign  %s to %s", c.Role, s.name(c.Owner))
	case fsm.ReleaseRole:
		s.log("vacate  %s of %s: %s %s", c.Role, s.name(c.Node), c.Code, c.Reason)
	default:
		require.Fail(s.t, "a plan holds only assignments and releases", "%s", c.Kind())
	}
}

// giveUp is a role actor that gives its role up.
func (s *sim) giveUp(r fsm.Role) {
	g := s.state.View().Role(r)
	s.log("gives up %s on %s", r, s.name(g.Owner))
	s.apply(fsm.ReleaseRole{Role: r, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-ROLE-099", Reason: "poison row"})
}

func (s *sim) memberState(n int, st fsm.MemberState) {
	m, _ := s.state.View().Member(s.order[n-1])
	s.log("%s becomes %s", m.Name, st)
	s.apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: st})
}

// owner is the number of the role's owner; 0 when vacant.
func (s *sim) owner(r fsm.Role) int {
	for i, n := range s.order {
		if s.state.View().Role(r).Owner == n {
			return i + 1
		}
	}
	return 0
}

func (s *sim) owners() []int {
	var out []int
	for _, r := range fsm.Roles() {
		out = append(out, s.owner(r))
	}
	return out
}

func all(n int) []int { return []int{n, n, n, n} }
