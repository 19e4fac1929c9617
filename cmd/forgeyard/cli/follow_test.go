// Following: run submit --wait and cluster status --watch.

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func TestSubmitSendsTheSpecification(t *testing.T) {
	var got runner.RunSpec
	url := fleet{"POST /v1/runs": func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, access.ReadJSON(w, r, &got))
		require.NotEmpty(t, r.Header.Get(runner.IdempotencyHeader))
		access.WriteJSON(w, http.StatusCreated, run(runner.RunRunning))
	}}.serve(t)
	s := invoke(t, []string{url}, nil, "run", "submit", "--label", "linux", "--env", "A=b=c", "--job-timeout", "90s", "--", "/usr/bin/go", "version", "--flag")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "submitted run 01JDVW0000000000000000RUN1 (1 job)\nnext: forgeyard run show 01JDVW0000000000000000RUN1\n", s.out.String())
	require.Equal(t, runner.RunSpec{Name: "go", Jobs: []runner.JobSpec{{
		Name: "go", Argv: []string{"/usr/bin/go", "version", "--flag"}, Env: map[string]string{"A": "b=c"}, Labels: []string{"linux"}, Timeout: runner.Duration(90e9),
	}}}, got)

	path := filepath.Join(t.TempDir(), "run.ron")
	for _, text := range []string{
		`(name: "r", jobs: [(name: "j", argv: ["go", "vet"], timeout: "5m", env: {"K": "v"})])`,
		`{"name": "r", "jobs": [{"name": "j", "argv": ["go", "vet"], "timeout": "5m", "env": {"K": "v"}}]}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		want := runner.RunSpec{Name: "r", Jobs: []runner.JobSpec{{Name: "j", Argv: []string{"go", "vet"}, Env: map[string]string{"K": "v"}, Timeout: runner.Duration(300e9)}}}
		got = runner.RunSpec{}
		require.Zero(t, invoke(t, []string{url}, nil, "run", "submit", path).code)
		require.Equal(t, want, got)
		got = runner.RunSpec{}
		require.Zero(t, invoke(t, []string{url}, func(s *screen) { s.In = strings.NewReader(text) }, "run", "submit", "-").code)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.WriteFile(path, []byte("(name: \"r\",\n jobs: [(name: \"j\", agrv: [])])"), 0o600))
	s = invoke(t, []string{url}, nil, "run", "submit", path)
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), path+":2:21: unknown field `agrv` in jobs[0]; did you mean `argv`?")
}

// answers serves one document after the other and then the last one for ever.
func answers(docs ...any) func(http.ResponseWriter, *http.Request) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		doc := docs[0]
		if len(docs) > 1 {
			docs = docs[1:]
		}
		if err, ok := doc.(error); ok {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, doc)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for end, want := range map[runner.RunState]int{runner.RunSucceeded: ExitOK, runner.RunFailed: ExitFailed} {
		url := fleet{
			"POST /v1/runs": run(runner.RunRunning),
			// A failover in the middle is waited out.
			"GET /v1/runs/01JDVW0000000000000000RUN1": answers(run(runner.RunRunning), cluster.ErrNoQuorum, run(end)),
		}.serve(t)
		s := invoke(t, []string{url}, nil, "run", "submit", "--wait", "--", "true")
		require.Equal(t, want, s.code, s.err.String())
		require.True(t, strings.HasPrefix(s.err.String(), "run 01JDVW0000000000000000RUN1: 1 queued, 1 running, 0 done\n"), s.err.String())
		require.True(t, strings.HasPrefix(s.out.String(), string(end)+"  build"), s.out.String())
		if end == runner.RunFailed {
			require.Contains(t, s.err.String(), "FY-CLI-007")
		}
	}
}

func TestWaitEndsOnAnAnswerThatWillNotChange(t *testing.T) {
	url := fleet{"POST /v1/runs": run(runner.RunRunning)}.serve(t)
	s := invoke(t, []string{url}, nil, "run", "submit", "--wait", "--", "true")
	require.Equal(t, ExitFailed, s.code)
	require.Contains(t, s.err.String(), "FY-API-002")
}

func TestCtrlCLeavesTheRunRunning(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := fleet{"POST /v1/runs": run(runner.RunRunning), "GET /v1/runs/01JDVW0000000000000000RUN1": func(w http.ResponseWriter, _ *http.Request) {
		access.WriteJSON(w, http.StatusOK, run(runner.RunRunning))
		cancel()
	}}.serve(t)
	s := &screen{}
	s.IO = IO{In: strings.NewReader(""), Out: &s.out, Err: &s.err}
	code := Run(ctx, s.IO, Deps{}, []string{"run", "submit", "--wait", "--endpoint", url, "--", "true"})
	require.Equal(t, ExitInterrupted, code)
	require.Contains(t, s.err.String(), "still running: forgeyard run show 01JDVW0000000000000000RUN1\n")
}

// stopAfter cancels once so many writes were made.
type stopAfter struct {
	text   bytes.Buffer
	left   int
	cancel func()
}

func (w *stopAfter) Write(b []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.cancel()
	}
	return w.text.Write(b)
}

func watched(t *testing.T, tty bool, writes int, docs ...any) string {
	t.Helper()
	url := fleet{"GET /v1/cluster/status": answers(docs...)}.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &stopAfter{left: writes, cancel: cancel}
	var errs bytes.Buffer
	code := Run(ctx, IO{In: strings.NewReader(""), Out: out, Err: &errs, OutTTY: tty, InTTY: tty, Width: 100, Environ: []string{"NO_COLOR=1"}}, Deps{},
		[]string{"cluster", "status", "--watch", "--endpoint", url})
	require.Equal(t, ExitInterrupted, code, errs.String())
	require.Empty(t, errs.String(), "Ctrl-C is how a watch ends well")
	return out.text.String()
}

func TestWatchInAPipe(t *testing.T) {
	t.Parallel()
	later := healthy()
	later.FreshnessMS, later.AppliedIndex, later.ObservedAt = 999, 99999, when().Add(1e9)
	out := watched(t, false, 3, healthy(), later, cluster.ErrNoQuorum, degraded())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3, "what differs in age only is no change")
	var docs []map[string]any
	for _, l := range lines {
		var d map[string]any
		require.NoError(t, json.Unmarshal([]byte(l), &d))
		docs = append(docs, d)
	}
	require.Equal(t, "HEALTHY", docs[0]["headline"])
	require.Contains(t, docs[1], "error")
	require.Equal(t, "DEGRADED", docs[2]["headline"])
	require.NotContains(t, out, "\x1b")
}

func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	out := watched(t, true, 3, degraded(), cluster.ErrNoQuorum)
	require.True(t, strings.HasPrefix(out, "\x1b[2J\x1b[HDEGRADED - "), out)
	require.Contains(t, out, "\x1b[HNO ANSWER - no majority of the voters can be reached\x1b[K\n")
	require.Equal(t, 2, strings.Count(out, "\x1b[J"), "what is left of a longer screen is erased")
}
