// The stand-in for a fleet: documents as a daemon answers them, and a terminal made of buffers.

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// screen is one invocation: its terminal and what it wrote.
type screen struct {
	IO
	out, err bytes.Buffer
	code     int
}

// invoke runs one command line against endpoints. prepare may change the terminal.
func invoke(t *testing.T, endpoints []string, prepare func(*screen), args ...string) *screen {
	t.Helper()
	s := &screen{}
	s.IO = IO{In: strings.NewReader(""), Out: &s.out, Err: &s.err, Environ: []string{"FORGEYARD_ENDPOINTS=" + strings.Join(endpoints, ",")}}
	if prepare != nil {
		prepare(s)
	}
	s.code = Run(t.Context(), s.IO, Deps{}, args)
	return s
}

// at makes the output a terminal of a width.
func at(width int) func(*screen) {
	return func(s *screen) { s.OutTTY, s.InTTY, s.Width = true, true, width }
}

// fleet serves documents and errors by "METHOD /path".
type fleet map[string]any

// serve starts a daemon's stand-in. A func answers as a handler, an error as a
// refusal, anything else as a document.
func (f fleet) serve(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch v := f[r.Method+" "+r.URL.Path].(type) {
		case nil:
			access.WriteError(w, access.ErrNotFound.Because("no such path: %s", r.URL.Path))
		case func(http.ResponseWriter, *http.Request):
			v(w, r)
		case error:
			access.WriteError(w, v)
		default:
			access.WriteJSON(w, http.StatusOK, v)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// golden compares with a file of testdata; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func id(n byte) fsm.NodeID { return fsm.NodeID{1, 15: n} }

func yes() *bool { b := true; return &b }

// when is the moment at which the fixtures were observed.
func when() time.Time { return time.Date(2026, 11, 29, 10, 2, 11, 0, time.UTC) }

func header(kind string) health.Header {
	return health.Header{APIVersion: apiVersion, Kind: kind, Provenance: health.Provenance{
		ObservedBy: id(2), ObservedName: "node-b", As: "follower", ObservedAt: when(), FreshnessMS: 210, Read: health.ReadQuorum,
	}}
}

func memberRows() []health.MemberRow {
	row := func(n byte, name string) health.MemberRow {
		return health.MemberRow{
			Node: id(n), Name: name, Role: fsm.Voter, State: fsm.Active, Health: health.MemberHealthy, ContactMS: 40, PGWritable: yes(),
			Endpoint: fsm.Endpoint("10.0.0.1" + string('0'+n) + ":7443"), Agents: fsm.Endpoint("10.0.0.1" + string('0'+n) + ":7444"),
			Protocol: fsm.VersionRange{Min: 1, Max: 2}, Build: "0.3.1",
		}
	}
	a, b, c := row(1, "node-a"), row(2, "node-b"), row(3, "node-c")
	a.Leader = true
	b.Self = true
	c.Health, c.Reason = health.MemberUnreachable, "no contact for 42 s"
	c.LagEntries, c.ContactMS, c.PGWritable = -1, 42000, nil
	return []health.MemberRow{a, b, c}
}

func roleRows() []health.RoleRow {
	return []health.RoleRow{
		{Role: fsm.ReleaseCoordinator, Epoch: 17, Owned: health.No, Fenced: health.No, Active: health.No,
			Why:         "node-b gave it up: the fence could not be raised",
			LastRelease: &fsm.Release{Role: fsm.ReleaseCoordinator, Epoch: 17, Node: id(2), Code: "FY-ROLE-011", Reason: "the fence could not be raised"},
			Backoff:     []health.BackoffRow{{Node: id(2), Name: "node-b", Failures: 2, LeftMS: 3100}}},
		{Role: fsm.SchedulerLeader, Owner: id(1), OwnerName: "node-a", Incarnation: fsm.IncarnationID{1, 15: 9}, Epoch: 42,
			Owned: health.Yes, Fenced: health.Yes, Active: health.Yes, Why: "the leader runs it"},
		{Role: fsm.DeploymentCoordinator, Owned: health.No, Fenced: health.No, Active: health.No, Why: "no reachable node registers this role", Unregistered: true},
	}
}

func degraded() health.ClusterStatus {
	return health.ClusterStatus{
		Header: header("ClusterStatus"), Headline: health.Degraded, Reasons: []string{"voter node-c is unreachable: no contact for 42 s"},
		Hint:      "bring node-c back",
		Quorum:    health.QuorumStatus{Health: health.QuorumDegraded, VotersHealthy: 2, VotersTotal: 3, Needed: 2, CanLose: 0, HighlyAvailable: true},
		Leader:    health.LeaderStatus{Node: id(1), Name: "node-a", SinceMS: 3_725_000, Epoch: fsm.LeaderEpoch{Term: 7, Epoch: 41}},
		ClusterID: fsm.ClusterID{1, 15: 1}, ClusterName: "forge", Generation: 1, Term: 7, AppliedIndex: 88123, Epoch: 42,
		PostgreSQL: health.PostgresStatus{Writable: []string{"node-a", "node-b"}}, Roles: health.RoleCounts{Active: 1, Runnable: 2},
		Maintenance: health.MaintenanceStatus{State: fsm.Normal}, Members: memberRows(), RoleRows: roleRows(),
	}
}

func healthy() health.ClusterStatus {
	s := degraded()
	s.Headline, s.Reasons, s.Hint = health.Healthy, nil, ""
	s.Quorum = health.QuorumStatus{Health: health.QuorumHealthy, VotersHealthy: 3, VotersTotal: 3, Needed: 2, CanLose: 1, HighlyAvailable: true}
	s.Members = s.Members[:2]
	return s
}

func noQuorum() health.ClusterStatus {
	s := degraded()
	s.Headline, s.Reasons = health.NoQuorum, []string{"1 of 3 voters is in contact; 2 are needed"}
	s.Hint = "bring node-a or node-c back"
	s.Quorum = health.QuorumStatus{Health: health.QuorumLost, VotersHealthy: 1, VotersTotal: 3, Needed: 2, CanLose: 0, HighlyAvailable: true}
	s.Leader = health.LeaderStatus{SinceMS: -1}
	s.As, s.Read, s.FreshnessMS = "none", health.ReadLocal, 14000
	return s
}

func forest() actors.Forest {
	return actors.Forest{APIVersion: apiVersion, Kind: "ActorTree", ObservedAt: when(), Node: id(2), NodeName: "node-b", DeadLetters: 3, Actors: []actors.ActorInfo{
		{Path: "root", Kind: actors.KindRoot, State: "running", StartedAt: when()},
		{Path: "roles/SchedulerLeader/42", Kind: actors.KindRole, State: "running", Role: fsm.SchedulerLeader, Epoch: 42, GuardState: cluster.GuardActive,
			MailboxDepth: 2, OldestMessageAge: 35 * time.Millisecond, Messages: 991, StartedAt: when(), LastScan: actors.Scan{Result: "12 active leases"}},
		{Path: "roles/SchedulerLeader/42/lease", Kind: actors.KindLoop, State: "running", Role: fsm.SchedulerLeader, Epoch: 42, Restarts: 1,
			LastFailure: "panic: row 7", StartedAt: when()},
	}}
}

func run(state runner.RunState) runner.RunDocument {
	exit, took := 2, runner.Duration(1500*time.Millisecond)
	d := runner.RunDocument{APIVersion: apiVersion, Kind: "Run", Run: runner.Run{
		ID: "01JDVW0000000000000000RUN1", Name: "build", State: state, SubmittedAt: when(), Counts: runner.Counts{Succeeded: 1, Failed: 1},
		Jobs: []runner.Job{
			{ID: "01JDVW0000000000000000JOB1", Name: "vet", Steps: []runner.Step{{Argv: []string{"go", "vet", "./..."}}}, State: runner.JobSucceeded, Attempt: 1, AttemptLimit: 3,
				Leases: []runner.Lease{{ID: "01JDVW000000000000000LEAS1", Attempt: 1, Agent: "agent-1", Epoch: 41, State: runner.LeaseDone, Outcome: runner.Succeeded, ExitCode: new(int), Duration: &took}}},
			{ID: "01JDVW0000000000000000JOB2", Name: "test", Steps: []runner.Step{{Argv: []string{"go", "test"}}}, State: runner.JobFailed, Attempt: 2, AttemptLimit: 3, Reason: "exit status 2",
				Leases: []runner.Lease{{ID: "01JDVW000000000000000LEAS0", Attempt: 1, Agent: "agent-1", Epoch: 41, State: runner.LeaseExpired, EndedAt: later(time.Minute), Reason: "the lease expired"}, {ID: "01JDVW000000000000000LEAS2", Attempt: 2, Agent: "agent-2", Epoch: 42, State: runner.LeaseDone, Outcome: runner.Failed, ExitCode: &exit, Duration: &took,
					OutputTail: "--- FAIL: TestX\n\x1b[31mred\n"}}},
		},
	}}
	switch state {
	case runner.RunRunning:
		d.Counts = runner.Counts{Queued: 1, Leased: 1}
	case runner.RunSucceeded:
		d.Counts, d.Jobs = runner.Counts{Succeeded: 1}, d.Jobs[:1]
	}
	return d
}

// everything is a fleet that answers every read.
func everything() fleet {
	f := plane()
	f["GET /v1/cluster/status"] = degraded()
	f["GET /v1/cluster/members"] = health.MemberList{Header: header("MemberList"), Headline: health.Degraded, Reasons: degraded().Reasons, Members: memberRows()}
	f["GET /v1/cluster/roles"] = health.RoleList{Header: header("RoleList"), Headline: health.Degraded, Roles: roleRows()}
	f["GET /v1/cluster/actors"] = forest()
	return f
}

// answered decodes a JSON error from standard error.
func (s *screen) problem(t *testing.T) access.Problem {
	t.Helper()
	var d access.Document
	require.NoError(t, json.Unmarshal(s.err.Bytes(), &d), s.err.String())
	return d.Error
}

// cancelled is a context that has ended as by Ctrl-C.
func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
