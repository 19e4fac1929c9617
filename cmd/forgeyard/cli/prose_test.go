// Prose on a narrow terminal, and the tables of an outage.

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestWrap(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		width, hang int
		want        string
	}{
		"a pipe":                 {"one two three", 0, 2, "one two three"},
		"it fits":                {"a  b ", 5, 2, "a  b "},
		"at words":               {"one two three", 9, 2, "one two\n  three"},
		"blanks stay":            {"a  b  cccc dd", 9, 1, "a  b\n cccc dd"},
		"indented":               {"  why: aa bb cc", 11, 7, "  why: aa\n   bb cc"},
		"a long word":            {"a longer-than-wide b", 8, 2, "a\n  longer-than-wide\n  b"},
		"runes":                  {"ünë twö", 6, 0, "ünë\ntwö"},
		"colours are no columns": {"\x1b[31mone\x1b[0m two x", 7, 0, "\x1b[31mone\x1b[0m two\nx"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, wrap(c.text, c.width, c.hang)) })
	}
}

func TestProseFitsTheTerminal(t *testing.T) {
	narrow := func(s *screen) { s.Width, s.ErrWidth = 60, 60 }
	whole := invoke(t, nil, nil, "explain", "FY-CLI-002")
	folded := invoke(t, nil, narrow, "explain", "FY-CLI-002")
	require.NotEqual(t, whole.out.String(), folded.out.String())
	require.Equal(t, strings.Fields(whole.out.String()), strings.Fields(folded.out.String()))
	failed := invoke(t, []string{dead(t)}, narrow, "cluster", "status")
	events := invoke(t, []string{plane().serve(t)}, narrow, "events", "--run", "release", "--timeout", "5s")
	for line := range strings.Lines(folded.out.String() + failed.err.String() + events.out.String()) {
		require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 60, line)
	}
	require.Equal(t, "2026-11-29T10:02:11Z  job.succeeded\n                    "+waitingRun+"  build\n                    attempt=1\n",
		strings.Join(strings.SplitAfter(events.out.String(), "\n")[:3], ""), "no id is cut")
	require.Contains(t, failed.err.String(), "\n  now: is a daemon running? name one with --endpoint or\n       FORGEYARD_ENDPOINTS")
}

// A long reason does not push the facts of an outage out of the table.
func TestUnreachableMemberKeepsItsFacts(t *testing.T) {
	rows := memberRows()
	rows[2].Reason = "dial 10.0.0.13:7443: timeout: no recent network activity, last reached 42 s ago"
	endpoint := fleet{"GET /v1/cluster/members": health.MemberList{Header: header("MemberList"), Headline: health.Degraded, Members: rows}}.serve(t)
	for width, want := range map[int]string{
		60: "NAME     STATE   ROLE    HEALTH       LAG      LAST CONTACT",
		80: "NAME     STATE   ROLE    HEALTH       LAG      LAST CONTACT  POSTGRES  VERSION",
	} {
		s := invoke(t, []string{endpoint}, at(width), "cluster", "members", "--color=never")
		require.Contains(t, s.out.String(), want+"\n")
		require.Contains(t, strings.Join(strings.Fields(s.out.String()), " "), "node-c: "+rows[2].Reason, "the reason has a line of its own")
	}
}

func TestRolesThatNobodyOffers(t *testing.T) {
	s := healthy()
	for i := range s.RoleRows {
		s.RoleRows[i].Unregistered = true
	}
	endpoint := fleet{"GET /v1/cluster/status": s, "GET /v1/cluster/roles": health.RoleList{Header: header("RoleList"), Headline: health.Healthy, Roles: s.RoleRows}}.serve(t)
	require.NotContains(t, invoke(t, []string{endpoint}, nil, "cluster", "status").out.String(), "Coordinator")
	require.Contains(t, invoke(t, []string{endpoint}, nil, "cluster", "status", "-o", "json").out.String(), "Coordinator")
	require.Contains(t, invoke(t, []string{endpoint}, nil, "cluster", "roles").out.String(),
		"not offered by any member: ReleaseCoordinator, SchedulerLeader, DeploymentCoordinator\n")
}

// The actors of a daemon that does not run a role end with who does.
func TestActorsNameTheOwner(t *testing.T) {
	idle := forest()
	idle.Actors = []actors.ActorInfo{{Path: "roles/SchedulerLeader", Kind: actors.KindRoleSupervisor, Role: fsm.SchedulerLeader, State: "running", StartedAt: when()}}
	owned := func(owner fsm.NodeID, name string) health.ClusterStatus {
		s := degraded()
		s.RoleRows[1].Owner, s.RoleRows[1].OwnerName = owner, name
		return s
	}
	for name, c := range map[string]struct {
		status any
		args   string
		want   string
	}{
		"another":   {owned(id(1), "node-a"), "", "now: SchedulerLeader runs on node-a; ask it: forgeyard actors --endpoint ADDRESS, the API or admin socket of node-a\n"},
		"nobody":    {owned(fsm.NodeID{}, ""), "", "now: no member runs SchedulerLeader; why: forgeyard cluster roles\n"},
		"itself":    {owned(id(2), "node-b"), "", ""},
		"no answer": {nil, "", ""},
		"documents": {owned(id(1), "node-a"), "-o json", ""},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := fleet{"GET /v1/cluster/actors": idle, "GET /v1/cluster/status": c.status}.serve(t)
			s := invoke(t, []string{endpoint}, nil, append([]string{"actors"}, strings.Fields(c.args)...)...)
			require.Zero(t, s.code, s.err.String())
			if c.want == "" {
				require.NotContains(t, s.out.String(), "now: ")
				return
			}
			require.True(t, strings.HasSuffix(s.out.String(), c.want), s.out.String())
		})
	}
}
