// Tests of Build: golden documents for whole situations, tables for single verdicts.

package health

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

func node(n uint64) fsm.NodeID { return id[fsm.NodeID](n) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fleet is a healthy fleet of n voters that node 1 leads, seen by node self.
func fleet(n int, self uint64) Input {
	state := fsm.NewState()
	index := uint64(0)
	apply := func(c fsm.Command) {
		index++
		if _, err := state.Apply(index, 3, fsm.Proposal{Request: id[fsm.RequestID](index), Command: c}); err != nil {
			panic(err)
		}
	}
	for i := 1; i <= n; i++ {
		m := fsm.Member{
			Node: node(uint64(i)), Incarnation: id[fsm.IncarnationID](uint64(i)), Name: "node-" + string(rune('a'+i-1)),
			Endpoint: fsm.Endpoint("10.0.0." + string(rune('0'+i)) + ":7443"), Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "v1",
		}
		if i == 1 {
			apply(fsm.InitCluster{ClusterID: id[fsm.ClusterID](1), Name: "yard", Founder: m})
			continue
		}
		m.Role = fsm.Learner
		apply(fsm.AddLearner{ExpectedConfig: state.View().Config, Member: m})
		apply(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: fsm.Active})
		apply(fsm.PromoteVoter{ExpectedConfig: state.View().Config, Node: m.Node})
	}
	apply(fsm.BumpEpoch{Term: 3, Node: node(1), Incarnation: id[fsm.IncarnationID](1)})
	for _, r := range fsm.Roles()[:2] {
		apply(fsm.AssignRole{Leader: state.View().LeaderEpoch, Role: r, Owner: node(1), Incarnation: id[fsm.IncarnationID](1)})
	}
	in := Input{
		Self:        cluster.Identity{Cluster: id[fsm.ClusterID](1), Node: node(self), Incarnation: id[fsm.IncarnationID](self), Name: "node-" + string(rune('a'+self-1))},
		View:        cluster.View{View: state.View(), Confirmed: now.Add(-200 * time.Millisecond), KnownLeader: node(1), RaftTerm: 3},
		LeaderSince: now.Add(-90 * time.Second),
		Now:         now,
	}
	in.Facts = Facts{From: node(1), Applied: index}
	for _, m := range in.View.Members {
		r := cluster.HealthReport{
			Node: m.Node, Incarnation: m.Incarnation, PGWritable: true, AppliedIndex: index,
			RunnableRoles: []fsm.Role{fsm.SchedulerLeader, fsm.ReleaseCoordinator},
		}
		for _, g := range in.View.Roles {
			if g.Owner == m.Node {
				r.Roles = append(r.Roles, cluster.RoleStatus{Role: g.Role, Epoch: g.Epoch, State: cluster.GuardActive})
			}
		}
		in.Facts.Reports = append(in.Facts.Reports, ReportFact{HealthReport: r, AgeMS: 50})
		if m.Node != node(1) {
			in.Facts.Peers = append(in.Facts.Peers, PeerFact{Node: m.Node, MatchIndex: index, ContactMS: 40})
		}
		if m.Node == node(self) {
			in.Own = r
		} else {
			in.Probes = append(in.Probes, Probe{Node: m.Node, LastOK: now.Add(-300 * time.Millisecond), Since: now.Add(-90 * time.Second)})
		}
	}
	return in
}

// cutOff takes everything from a node that only an intact network gives.
func cutOff(in *Input, d time.Duration) {
	in.View.Confirmed = now.Add(-d)
	in.View.KnownLeader = fsm.NodeID{}
	in.Facts = Facts{}
	in.LeaderSince = now.Add(-d)
	for i := range in.Probes {
		fail(&in.Probes[i], d)
	}
}

func fail(p *Probe, d time.Duration) {
	p.LastOK, p.Since, p.Err = now.Add(-d), now.Add(-d), "dial 10.0.0.2:7443: timeout after 1s"
}

func golden(t *testing.T, name string, doc any) {
	t.Helper()
	got, err := json.MarshalIndent(doc, "", "  ")
	require.NoError(t, err)
	got = append(got, '\n')
	path := filepath.Join("testdata", name+".json")
	if os.Getenv("FORGEYARD_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestBuildGolden(t *testing.T) {
	for name, c := range map[string]struct {
		in       func() Input
		headline Headline
	}{
		"healthy-leader":   {func() Input { return fleet(3, 1) }, Healthy},
		"healthy-follower": {func() Input { return fleet(3, 2) }, Healthy},
		"single-node":      {func() Input { return fleet(1, 1) }, Healthy},
		"degraded": {func() Input {
			in := fleet(3, 2)
			in.Facts.Peers[1].ContactMS = 42_000
			in.Facts.Reports = in.Facts.Reports[:2]
			fail(&in.Probes[1], 42*time.Second)
			return in
		}, Degraded},
		"no-quorum": {func() Input {
			in := fleet(3, 1)
			cutOff(&in, 14*time.Second)
			return in
		}, NoQuorum},
		"starting": {func() Input {
			return Input{Self: cluster.Identity{Node: node(1), Name: "node-a"}, Now: now}
		}, Unknown},
		"role-given-up": {func() Input {
			in := fleet(3, 1)
			g := &in.View.Roles[0]
			in.View.Releases = []fsm.Release{{Role: g.Role, Epoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-ROLE-023", Reason: "the role was not active for 15.1s"}}
			*g = fsm.RoleGrant{Role: g.Role, Epoch: g.Epoch}
			in.Facts.Backoff = []BackoffFact{{Role: g.Role, Node: node(1), Failures: 2, LeftMS: 1500}}
			return in
		}, Degraded},
	} {
		t.Run(name, func(t *testing.T) {
			s := Build(c.in())
			require.Equal(t, c.headline, s.Headline)
			require.Equal(t, s.Headline == Healthy, len(s.Reasons) == 0, "every other headline has a reason: %q", s.Reasons)
			golden(t, name, s)
		})
	}
	golden(t, "members", Build(fleet(3, 2)).MemberList())
	golden(t, "roles", Build(fleet(3, 2)).RoleList())
}

func TestQuorumHealth(t *testing.T) {
	t.Run("Healthy", func(t *testing.T) {
		s := Build(fleet(5, 3))
		require.Equal(t, QuorumStatus{Health: QuorumHealthy, VotersHealthy: 5, VotersTotal: 5, Needed: 3, CanLose: 2, HighlyAvailable: true}, s.Quorum)
	})
	t.Run("Degraded", func(t *testing.T) {
		missing := fleet(5, 1)
		missing.Facts.Peers[0].ContactMS = ContactLimit.Milliseconds() + 1
		s := Build(missing)
		require.Equal(t, QuorumStatus{Health: QuorumDegraded, VotersHealthy: 4, VotersTotal: 5, Needed: 3, CanLose: 1, HighlyAvailable: true}, s.Quorum)

		lagging := fleet(3, 1)
		lagging.Facts.Applied += LagLimit + 1
		lagging.Facts.Peers[0].MatchIndex = lagging.Facts.Applied
		s = Build(lagging)
		require.Equal(t, QuorumDegraded, s.Quorum.Health)
		require.Equal(t, 0, s.Quorum.CanLose, "a lagging voter is no spare one")

		silent := fleet(3, 2)
		silent.Facts, silent.Probes = Facts{}, nil
		s = Build(silent)
		require.Equal(t, QuorumDegraded, s.Quorum.Health, "a confirmed view proves a quorum, and no more")
		require.Equal(t, -1, s.Quorum.CanLose)
	})
	t.Run("Lost", func(t *testing.T) {
		in := fleet(3, 2)
		cutOff(&in, 5*time.Second)
		s := Build(in)
		require.Equal(t, QuorumLost, s.Quorum.Health)
		require.Equal(t, 0, s.Quorum.CanLose)
		require.Equal(t, "no majority: node-a, node-c unreachable since 03:04:00Z", s.Reasons[0])

		// A majority can be reached and still nobody leads.
		in = fleet(3, 2)
		probes := in.Probes
		cutOff(&in, 5*time.Second)
		in.Probes = probes
		for i := range in.Probes {
			in.Probes[i] = Probe{Node: in.Probes[i].Node, LastOK: now, Since: now.Add(-time.Hour)}
		}
		s = Build(in)
		require.Equal(t, QuorumLost, s.Quorum.Health)
		require.Equal(t, "no leader for 4.5s, 3 of 3 voters known to be reachable", s.Reasons[0])

		// A leader that is known by name but confirms nothing is no quorum.
		in = fleet(3, 1)
		in.View.Confirmed = now.Add(-5 * time.Second)
		require.Equal(t, QuorumLost, Build(in).Quorum.Health)
	})
	t.Run("Unknown", func(t *testing.T) {
		in := fleet(3, 2)
		cutOff(&in, 2*DefaultElection+cluster.ConfirmationBound)
		require.Equal(t, QuorumUnknown, Build(in).Quorum.Health, "an election may be running")
		cutOff(&in, 2*DefaultElection+cluster.ConfirmationBound+time.Millisecond)
		require.Equal(t, QuorumLost, Build(in).Quorum.Health)

		in = fleet(3, 2)
		in.View.Confirmed = now.Add(-time.Minute)
		s := Build(in)
		require.Equal(t, QuorumUnknown, s.Quorum.Health, "a voter that follows a leader and is behind hears of a quorum")
		require.Contains(t, s.Reasons[0], "leads, and this node has not caught up with it for")

		in = fleet(3, 3)
		in.View.Members[2].Role = fsm.Observer
		cutOff(&in, time.Minute)
		require.Equal(t, QuorumUnknown, Build(in).Quorum.Health, "an observer with a stale view cannot tell")

		in = fleet(3, 3)
		in.Self.Node = node(9)
		require.Equal(t, QuorumUnknown, Build(in).Quorum.Health)
	})
}

func TestHighAvailability(t *testing.T) {
	for n, want := range map[int]struct {
		ha   bool
		lose int
		note string
	}{
		1: {false, 0, "no high availability"},
		2: {false, 0, "no high availability"},
		3: {true, 1, ""},
		4: {true, 1, "4 voters tolerate no more failures than 3"},
		5: {true, 2, ""},
	} {
		s := Build(fleet(n, 1))
		require.Equal(t, Healthy, s.Headline, "%d voters", n)
		require.Equal(t, want.ha, s.Quorum.HighlyAvailable, "%d voters", n)
		require.Equal(t, want.lose, s.Quorum.CanLose, "%d voters", n)
		if want.note == "" {
			require.Empty(t, s.Notes, "%d voters", n)
			continue
		}
		require.Contains(t, s.Notes[0], want.note)
	}
}

func TestMemberHealth(t *testing.T) {
	t.Run("lag", func(t *testing.T) {
		in := fleet(3, 2)
		in.Facts.Applied += 7
		rows := Build(in).Members
		require.Equal(t, []int64{0, 7, 7}, []int64{rows[0].LagEntries, rows[1].LagEntries, rows[2].LagEntries})
	})
	t.Run("heartbeat", func(t *testing.T) {
		in := fleet(3, 2)
		in.Facts.Peers[1].ContactMS = 1234
		require.Equal(t, int64(1234), Build(in).Members[2].ContactMS)
		in.Facts.Peers[1].ContactMS = -1
		row := Build(in).Members[2]
		require.Equal(t, MemberUnreachable, row.Health)
		require.Equal(t, int64(-1), row.ContactMS)
	})
	t.Run("db", func(t *testing.T) {
		in := fleet(3, 2)
		in.Facts.Reports[0].PGWritable = false
		in.Facts.Reports[2].AgeMS = ContactLimit.Milliseconds() + 1
		s := Build(in)
		require.Equal(t, PostgresStatus{Writable: []string{"node-b"}, Missing: []string{"node-a"}}, s.PostgreSQL)
		require.Nil(t, s.Members[2].PGWritable, "an old report says nothing about now")
		require.Equal(t, Degraded, s.Headline)
		require.Equal(t, QuorumHealthy, s.Quorum.Health, "a database fault is not a quorum fault")
	})
}

// TestAliveButLagging: three different things that must not look alike.
func TestAliveButLagging(t *testing.T) {
	in := fleet(3, 1)
	in.Facts.Applied += 1000
	in.Facts.Peers[0].MatchIndex = in.Facts.Applied
	in.Facts.Peers[1].ContactMS = 30
	rows := Build(in).Members
	require.Equal(t, MemberHealthy, rows[1].Health)
	require.Equal(t, MemberLagging, rows[2].Health)
	require.Contains(t, rows[2].Reason, "alive, but 1000 entries behind")
	in.Facts.Peers[1].ContactMS = 60_000
	require.Equal(t, MemberUnreachable, Build(in).Members[2].Health)
}

func TestUnreachableMembersKeepTheirRows(t *testing.T) {
	in := fleet(5, 1)
	cutOff(&in, time.Minute)
	s := Build(in)
	require.Len(t, s.Members, 5)
	for _, m := range s.Members[1:] {
		require.Equal(t, MemberUnreachable, m.Health)
		require.Equal(t, "dial 10.0.0.2:7443: timeout after 1s, last reached 1m0s ago", m.Reason)
		require.Equal(t, time.Minute.Milliseconds(), m.ContactMS)
	}
}

func TestRoleFacts(t *testing.T) {
	row := func(change func(in *Input)) RoleRow {
		in := fleet(3, 2)
		change(&in)
		return Build(in).RoleRows[0]
	}
	state := func(s cluster.GuardState) func(*Input) {
		return func(in *Input) { in.Facts.Reports[0].Roles[0].State = s }
	}
	for name, c := range map[string]struct {
		change                func(in *Input)
		owned, fenced, active Fact
		why                   string
	}{
		"active":      {state(cluster.GuardActive), Yes, Yes, Yes, "active"},
		"fenced":      {state(cluster.GuardFenced), Yes, Yes, No, "reconciling"},
		"granted":     {state(cluster.GuardGranted), Yes, No, No, "raising the database fence"},
		"revoked":     {state(cluster.GuardRevoked), Yes, No, No, "epoch is spent"},
		"not yet":     {func(in *Input) { in.Facts.Reports[0].Roles = nil }, Yes, No, No, "node-a has not started it yet"},
		"other epoch": {func(in *Input) { in.Facts.Reports[0].Roles[0].Epoch-- }, Yes, No, No, "node-a has not started it yet"},
		"no report":   {func(in *Input) { in.Facts.Reports = in.Facts.Reports[1:] }, Yes, NotKnown, NotKnown, "node-a does not report"},
		"earlier leadership": {func(in *Input) {
			in.View.LeaderEpoch.Epoch = 99
			state(cluster.GuardRevoked)(in)
		}, Yes, No, No, "earlier leadership"},
		"no database": {func(in *Input) {
			state(cluster.GuardGranted)(in)
			in.Facts.Reports[0].PGWritable = false
		}, Yes, No, No, "node-a cannot write to PostgreSQL"},
		"vacant": {func(in *Input) { in.View.Roles[0] = fsm.RoleGrant{Role: fsm.SchedulerLeader, Epoch: 9} }, No, No, No, "not assigned yet"},
	} {
		t.Run(name, func(t *testing.T) {
			r := row(c.change)
			require.Equal(t, []Fact{c.owned, c.fenced, c.active}, []Fact{r.Owned, r.Fenced, r.Active})
			require.Contains(t, r.Why, c.why)
		})
	}
}

func TestRoleThatNobodyRegistersIsNoFault(t *testing.T) {
	s := Build(fleet(3, 1))
	require.Equal(t, RoleCounts{Active: 2, Runnable: 2}, s.Roles)
	require.Equal(t, "no reachable node registers this role", s.RoleRows[3].Why)
	require.True(t, s.RoleRows[3].Unregistered)
	require.Equal(t, Healthy, s.Headline)
}

func TestRolesThatDoNotWorkComeFirst(t *testing.T) {
	in := fleet(3, 1)
	in.View.Roles[1] = fsm.RoleGrant{Role: fsm.ReleaseCoordinator, Epoch: 7}
	in.Own.Roles[0].State = cluster.GuardFenced
	var order []fsm.Role
	for _, r := range Build(in).RoleList().Roles {
		order = append(order, r.Role)
	}
	require.Equal(t, []fsm.Role{fsm.ReleaseCoordinator, fsm.SchedulerLeader, fsm.DeploymentCoordinator, fsm.MigrationCoordinator}, order)
}

func TestClusterHealthShape(t *testing.T) {
	doc, err := json.Marshal(Build(fleet(3, 2)))
	require.NoError(t, err)
	var m map[string]any
	require.NoError(t, json.Unmarshal(doc, &m))
	for _, key := range []string{"apiVersion", "kind", "observed_by", "observed_at", "freshness_ms", "read", "headline", "quorum", "leader", "term", "members", "role_rows", "maintenance"} {
		require.Contains(t, m, key)
	}
	require.NotContains(t, strings.ReplaceAll(string(doc), `"last_release":null`, ""), ":null", "empty lists are [], unknown numbers are -1")
}

// TestIndependentSubsystems: losing the quorum says nothing about PostgreSQL.
func TestIndependentSubsystems(t *testing.T) {
	in := fleet(3, 1)
	cutOff(&in, time.Minute)
	s := Build(in)
	require.Equal(t, NoQuorum, s.Headline)
	require.Equal(t, []string{"node-a"}, s.PostgreSQL.Writable)
	for _, r := range s.Reasons {
		require.False(t, strings.Contains(r, "PostgreSQL"), r)
	}
}
