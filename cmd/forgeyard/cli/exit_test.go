// Exit codes, errors on standard error, and trying the next endpoint.

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// dead is an address at which nobody listens.
func dead(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestCLIExitCodes(t *testing.T) {
	status := func(s health.ClusterStatus) fleet { return fleet{"GET /v1/cluster/status": s} }
	promote := func(err error) fleet {
		return fleet{"GET /v1/cluster/status": degraded(), "POST /v1/cluster/promote": err}
	}
	kind := func(k cluster.Kind) error {
		return &cluster.Error{Kind: k, Code: "FY-TEST-001", Message: "m", Hint: "h"}
	}
	unknown := &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-TEST-002", Message: "m", OutcomeUnknown: true}
	cut := func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	for _, c := range []struct {
		name string
		f    fleet
		args string
		want int
	}{
		{"healthy", status(healthy()), "cluster status --strict", ExitOK},
		{"degraded", status(degraded()), "cluster status", ExitOK},
		{"degraded, strict", status(degraded()), "cluster status --strict", ExitDegraded},
		{"no quorum", status(noQuorum()), "cluster status", ExitUnhealthy},
		{"no quorum, other read", fleet{"GET /v1/cluster/members": health.MemberList{Headline: health.NoQuorum}}, "cluster members", ExitOK},
		{"unknown", status(func() health.ClusterStatus { s := noQuorum(); s.Headline = health.Unknown; return s }()), "cluster status", ExitUnhealthy},
		{"NotLeader", promote(kind(cluster.NotLeader)), "cluster promote x", ExitFailed},
		{"NoQuorum", promote(kind(cluster.NoQuorum)), "cluster promote x", ExitFailed},
		{"Fenced", promote(kind(cluster.Fenced)), "cluster promote x", ExitRefused},
		{"MembershipConflict", promote(kind(cluster.MembershipConflict)), "cluster promote x", ExitRefused},
		{"JoinRejected", promote(kind(cluster.JoinRejected)), "cluster promote x", ExitDenied},
		{"IncompatibleVersion", promote(kind(cluster.IncompatibleVersion)), "cluster promote x", ExitFailed},
		{"StorageFailure", promote(kind(cluster.StorageFailure)), "cluster promote x", ExitFailed},
		{"TransportFailure", promote(kind(cluster.TransportFailure)), "cluster promote x", ExitFailed},
		{"Internal", promote(kind(cluster.Internal)), "cluster promote x", ExitFailed},
		{"outcome unknown", promote(unknown), "cluster promote x", ExitUnknown},
		{"daemon's own failure", promote(errors.New("boom")), "cluster promote x", ExitUnknown},
		{"permission", promote(&access.Fault{Status: http.StatusForbidden, Code: "FY-TEST-001", Message: "denied"}), "cluster promote x", ExitDenied},
		{"connection cut while changing", fleet{"GET /v1/cluster/status": degraded(), "POST /v1/cluster/promote": cut}, "cluster promote x", ExitUnknown},
		{"connection cut while reading", fleet{"GET /v1/cluster/roles": cut}, "cluster roles", ExitFailed},
		{"not found", fleet{}, "run show x", ExitFailed},
		{"not a daemon", fleet{"GET /v1/runs": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }}, "run list", ExitFailed},
		{"redirect", fleet{"GET /v1/runs": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://x", http.StatusTemporaryRedirect)
		}}, "run list", ExitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := invoke(t, []string{c.f.serve(t)}, nil, append(strings.Fields(c.args), "-o", "json")...)
			require.Equal(t, c.want, s.code, s.err.String())
			if c.want == ExitOK || strings.HasPrefix(c.args, "cluster status") {
				require.Empty(t, s.err.String())
				return
			}
			require.Empty(t, s.out.String(), "standard output holds data only")
			p := s.problem(t)
			require.NotEmpty(t, p.Code)
			require.NotEmpty(t, p.Message)
		})
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"--bogus", "clutser", "cluster stats", "cluster status extra", "cluster status -o xml", "cluster status --color=blue",
		"cluster status --timeout 0s", "cluster status --timeout soon", "cluster promote", "cluster add", "cluster add not-an-id",
		"run submit", "run submit a b", "run submit /does/not/exist", "run submit --name x /dev/null", "run list --limit 0", "run show",
		"run submit --env X -- true", "run submit --wait --follow -- true", "run submit --source /does/not/exist -- true",
		"run exec true", "run exec --artifact x -- true", "run exec --artifact x=../up -- true", "run list --state odd", "run logs", "run logs a b c",
		"run logs 01JDVW0000000000000000RUN1 --attempt 0", "run artifacts a b --file x", "run artifacts a b c --file x --out y", "run cancel", "run why",
		"agents quarantine x", "agents show", "events", "gc run now", "queues x", "run submit --priority 101 -- true", "explain", "explain FY-NOPE-001", "explain a b",
		"pki issue node", "pki issue robot x", "pki issue node x --days 0", "config check a b", "--endpoint ftp://x cluster status", "version x",
	} {
		t.Run(args, func(t *testing.T) {
			prepare := func(s *screen) { s.Environ = nil }
			fields := strings.Fields(args)
			if strings.HasPrefix(args, "pki issue") {
				fields = append(fields, "--dir", authority(t))
			}
			s := invoke(t, nil, prepare, fields...)
			require.Equal(t, ExitUsage, s.code, "%s%s", s.out.String(), s.err.String())
			require.Empty(t, s.out.String())
			require.True(t, strings.HasPrefix(s.err.String(), "error: "), s.err.String())
			require.NotContains(t, s.err.String(), "Usage:", "the message is not buried under the help")
		})
	}
}

func TestErrorTextsAreWhole(t *testing.T) {
	f := fleet{"GET /v1/cluster/status": degraded(), "POST /v1/cluster/promote": &cluster.Error{
		Kind: cluster.MembershipConflict, Code: "FY-MEMBER-002", Message: "node-d is 812 entries behind", Hint: "wait", OutcomeUnknown: true}}
	s := invoke(t, []string{f.serve(t)}, nil, "cluster", "promote", "node-d")
	require.Equal(t, "error: node-d is 812 entries behind\n  now: wait\n  the outcome is unknown: it may have been done\n  why: forgeyard explain FY-MEMBER-002\n", s.err.String())
}

func TestNextEndpoint(t *testing.T) {
	alive := everything().serve(t)
	refusing := fleet{"GET /v1/cluster/status": cluster.ErrNoQuorum}.serve(t)
	s := invoke(t, []string{dead(t), refusing, alive}, nil, "cluster", "status")
	require.Zero(t, s.code, s.err.String())
	require.Contains(t, s.out.String(), "DEGRADED")

	s = invoke(t, nil, nil, "cluster", "status", "--endpoint", dead(t), "--endpoint", alive)
	require.Zero(t, s.code, "--endpoint goes before the environment")

	s = invoke(t, []string{dead(t), dead(t)}, nil, "cluster", "status", "-o", "json")
	require.Equal(t, ExitFailed, s.code)
	p := s.problem(t)
	require.Equal(t, client.CodeUnreachable, p.Code)
	require.Equal(t, 2, strings.Count(p.Message, "connection refused"), p.Message)

	s = invoke(t, []string{dead(t), refusing}, nil, "cluster", "status", "-o", "json")
	require.Equal(t, "FY-QUORUM-001", s.problem(t).Code, "an answer explains more than a refused connection")
}

// A change is sent to a second daemon only if the first one certainly did nothing.
func TestChangesAreNotRepeated(t *testing.T) {
	var second int
	counting := fleet{
		"GET /v1/cluster/status": degraded(),
		"POST /v1/cluster/promote": func(w http.ResponseWriter, _ *http.Request) {
			second++
			access.WriteJSON(w, http.StatusOK, map[string]any{"name": "x", "voters": 3})
		},
		"POST /v1/runs": func(w http.ResponseWriter, r *http.Request) {
			second++
			require.Equal(t, "my-key", r.Header.Get(runner.IdempotencyHeader))
			access.WriteJSON(w, http.StatusCreated, run(runner.RunRunning))
		},
	}.serve(t)
	lost := &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-RAFT-007", Message: "no answer", OutcomeUnknown: true}
	unsure := fleet{"GET /v1/cluster/status": degraded(), "POST /v1/cluster/promote": lost, "POST /v1/runs": lost}.serve(t)

	s := invoke(t, []string{unsure, counting}, nil, "cluster", "promote", "x")
	require.Equal(t, ExitUnknown, s.code)
	require.Zero(t, second)
	s = invoke(t, []string{dead(t), counting}, nil, "cluster", "promote", "x")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, 1, second)
	s = invoke(t, []string{unsure, counting}, nil, "run", "submit", "--idempotency-key", "my-key", "--", "true")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, 2, second, "under a key a repetition is harmless")
	require.Equal(t, runner.IdempotencyHeader, client.IdempotencyHeader)
}

func TestUnixEndpoint(t *testing.T) {
	path := t.TempDir() + "/admin.sock"
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { access.WriteJSON(w, 200, healthy()) })}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	s := invoke(t, nil, nil, "cluster", "status", "--endpoint", "unix://"+path)
	require.Zero(t, s.code, s.err.String())
	require.Contains(t, s.out.String(), "HEALTHY - can lose 1 more voter\n")
	require.NoError(t, srv.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

func TestInterrupted(t *testing.T) {
	var out, errs bytes.Buffer
	code := Run(cancelled(t), IO{In: strings.NewReader(""), Out: &out, Err: &errs}, Deps{}, []string{"cluster", "status", "--endpoint", dead(t)})
	require.Equal(t, ExitInterrupted, code, errs.String())
}

// Nobody has to type before Ctrl-C is heard.
func TestInterruptedWhileReading(t *testing.T) {
	single := healthy()
	single.Quorum.VotersTotal, single.Members = 1, single.Members[:1]
	for _, args := range []string{"run submit -", "cluster promote node-b"} {
		t.Run(args, func(t *testing.T) {
			f := fleet{"GET /v1/cluster/status": single}
			silent, typed := io.Pipe()
			defer typed.Close()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			var out, errs bytes.Buffer
			screen := IO{In: silent, Out: &out, Err: &errs, InTTY: true, OutTTY: true}
			require.Equal(t, ExitInterrupted, Run(ctx, screen, Deps{}, append(strings.Fields(args), "--endpoint", f.serve(t))), errs.String())
		})
	}
}

func TestNoQuorumBanner(t *testing.T) {
	f := fleet{"GET /v1/cluster/roles": health.RoleList{Header: noQuorum().Header, Headline: health.NoQuorum, Roles: roleRows()}, "GET /v1/cluster/status": noQuorum()}
	url := f.serve(t)
	s := invoke(t, []string{url}, nil, "cluster", "roles")
	require.Zero(t, s.code)
	require.True(t, strings.HasPrefix(s.out.String(), "NO QUORUM - this is what one node last knew; it may be behind\n"), s.out.String())
	s = invoke(t, []string{url}, nil, "cluster", "status")
	require.True(t, strings.HasPrefix(s.out.String(), "NO QUORUM - writes stopped; running jobs go on\n"), s.out.String())
	require.Contains(t, s.out.String(), "leader       none known\n")
	require.Contains(t, s.out.String(), "as seen by node-b (no leader known), read: local, 14.0 s old\nwhy: 1 of 3 voters is in contact; 2 are needed\nnow: bring node-a or node-c back\n")
}
