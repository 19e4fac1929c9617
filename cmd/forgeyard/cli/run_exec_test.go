// run exec and run submit --follow: a command's output, its exit code, and what Ctrl-C does.

package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// one is a run of one job in a state.
func one(state runner.JobState, outcome runner.Outcome, exit int) runner.RunDocument {
	d := run(runner.RunRunning)
	d.Jobs = d.Jobs[:1]
	j := &d.Jobs[0]
	j.State, j.Leases[0].Outcome, j.Leases[0].ExitCode = state, outcome, &exit
	switch state {
	case runner.JobSucceeded:
		d.State, d.Counts = runner.RunSucceeded, runner.Counts{Succeeded: 1}
	case runner.JobFailed:
		d.State, d.Counts, j.Reason = runner.RunFailed, runner.Counts{Failed: 1}, "exit status"
	case runner.JobCancelled:
		d.State, d.Counts, j.Reason = runner.RunCancelled, runner.Counts{Cancelled: 1}, "cancelled: interrupted"
	case runner.JobQueued:
		j.Attempt, j.Leases, d.Counts = 0, nil, runner.Counts{Queued: 1}
	default:
		d.Counts = runner.Counts{Leased: 1}
	}
	return d
}

func execution(end runner.RunDocument) fleet {
	return fleet{
		"POST /v1/runs":                                one(runner.JobQueued, "", 0),
		"GET /v1/runs/" + failedRun:                    answers(one(runner.JobLeased, "", 0), end),
		"GET /v1/runs/" + failedRun + "/jobs/vet/logs": log("hello\n"),
	}
}

func TestExecExitsAsTheCommandDid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  runner.RunDocument
		want int
	}{
		"succeeded":     {one(runner.JobSucceeded, runner.Succeeded, 0), 0},
		"failed":        {one(runner.JobFailed, runner.Failed, 37), 37},
		"out of range":  {one(runner.JobFailed, runner.Failed, 300), ExitFailed},
		"timed out":     {one(runner.JobFailed, runner.TimedOut, 137), ExitFailed},
		"not started":   {one(runner.JobFailed, runner.Errored, 0), ExitFailed},
		"was cancelled": {one(runner.JobCancelled, runner.Cancelled, 143), ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := invoke(t, []string{execution(c.end).serve(t)}, nil, "run", "exec", "--", "vet", "-x")
			require.Equal(t, c.want, s.code, s.err.String())
			require.Equal(t, "hello\n", s.out.String())
			require.True(t, strings.HasPrefix(s.err.String(), "run "+failedRun+"\n"), s.err.String())
		})
	}
}

func TestExecShowsTheLastOutputWhereLogsCannotBeRead(t *testing.T) {
	end := one(runner.JobSucceeded, runner.Succeeded, 0)
	end.Jobs[0].Leases[0].OutputTail = "the tail\n"
	f := execution(end)
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = runner.ErrNoArtifactStore
	s := invoke(t, []string{f.serve(t)}, nil, "run", "exec", "--", "vet")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "the tail\n", s.out.String())
	require.Contains(t, s.err.String(), "the log of vet cannot be shown: this daemon has no artifact store")
}

func TestExecSendsTheJob(t *testing.T) {
	var got runner.RunSpec
	f := execution(one(runner.JobSucceeded, runner.Succeeded, 0))
	f["POST /v1/runs"] = func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, access.ReadJSON(w, r, &got))
		access.WriteJSON(w, http.StatusCreated, one(runner.JobQueued, "", 0))
	}
	s := invoke(t, []string{f.serve(t)}, func(s *screen) { s.Environ = append(s.Environ, "HERE=there") },
		"run", "exec", "--label", "gpu", "--queue", "nightly", "--env", "HERE", "--env", "A=b", "--artifact", "app=bin/app", "--", "vet")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, runner.RunSpec{Name: "vet", Queue: "nightly", Jobs: []runner.JobSpec{{
		Name: "vet", Argv: []string{"vet"}, Labels: []string{"gpu"}, Env: map[string]string{"HERE": "there", "A": "b"},
		Outputs: []runner.Output{{Name: "app", Path: "bin/app"}},
	}}}, got)
}

// presser is a person who presses Ctrl-C.
type presser chan os.Signal

func (p presser) deliver() (<-chan os.Signal, func()) { return p, func() {} }

func TestCtrlCAsksForTheEnd(t *testing.T) {
	t.Parallel()
	keys := make(presser, 2)
	var mu sync.Mutex
	var asked runner.CancelRequest
	state := one(runner.JobLeased, "", 0)
	f := execution(state)
	f["GET /v1/runs/"+failedRun] = func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		access.WriteJSON(w, http.StatusOK, state)
	}
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = func(w http.ResponseWriter, r *http.Request) {
		keys <- os.Interrupt // once its output is seen
		serveLog(w, r, "hello\n", 6)
	}
	f["POST /v1/runs/"+failedRun+"/cancel"] = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		require.NoError(t, access.ReadJSON(w, r, &asked))
		state = one(runner.JobCancelled, runner.Cancelled, 143)
		access.WriteJSON(w, http.StatusOK, state)
	}
	s := invoke(t, []string{f.serve(t)}, func(s *screen) { s.Interrupts = keys.deliver }, "run", "exec", "--", "vet")
	require.Equal(t, ExitInterrupted, s.code, s.err.String())
	require.Equal(t, runner.CancelRequest{Reason: "interrupted"}, asked)
	require.Contains(t, s.err.String(), "asking for the end of run "+failedRun+"; Ctrl-C again leaves it alone\n")
	require.Contains(t, s.err.String(), "cancelled: interrupted\n")
}

func TestTwoCtrlCsDetach(t *testing.T) {
	t.Parallel()
	keys := make(presser, 2)
	f := execution(one(runner.JobLeased, "", 0))
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = func(w http.ResponseWriter, r *http.Request) {
		keys <- os.Interrupt // once its output is seen
		serveLog(w, r, "hello\n", 6)
	}
	f["POST /v1/runs/"+failedRun+"/cancel"] = func(w http.ResponseWriter, _ *http.Request) {
		access.WriteJSON(w, http.StatusOK, one(runner.JobLeased, "", 0))
		keys <- os.Interrupt
	}
	s := invoke(t, []string{f.serve(t)}, func(s *screen) { s.Interrupts = keys.deliver }, "run", "exec", "--", "vet")
	require.Equal(t, ExitInterrupted, s.code, s.err.String())
	require.Contains(t, s.err.String(), "left while it ends: forgeyard run show "+failedRun+"\n")
}

// TestCtrlCBeforeThereIsARun: whatever hangs on the way to a run, a press ends the
// command, and it says whether there may be one.
func TestCtrlCBeforeThereIsARun(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	require.NoError(t, os.WriteFile(source+"/file", []byte("text"), 0o600))
	for where, c := range map[string]struct {
		route string
		says  string
		args  []string
	}{
		"uploading":  {"POST /v1/sources", "interrupted: nothing was submitted", []string{"--source", source}},
		"submitting": {"POST /v1/runs", "interrupted: the run may have been submitted; repeat the command with --idempotency-key ", nil},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			keys := make(presser, 2)
			f := execution(one(runner.JobLeased, "", 0))
			f[c.route] = func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				keys <- os.Interrupt
				<-r.Context().Done() // it never answers
			}
			s := invoke(t, []string{f.serve(t)}, func(s *screen) { s.Interrupts = keys.deliver }, append(append([]string{"run", "exec"}, c.args...), "--", "vet")...)
			require.Equal(t, ExitInterrupted, s.code, s.err.String())
			require.Contains(t, s.err.String(), c.says)
		})
	}
}

func TestSubmitFollow(t *testing.T) {
	t.Parallel()
	f := fleet{
		"POST /v1/runs":                                 run(runner.RunRunning),
		"GET /v1/runs/" + failedRun:                     answers(run(runner.RunRunning), run(runner.RunFailed)),
		"GET /v1/runs/" + failedRun + "/jobs/vet/logs":  log("vet: ok\n"),
		"GET /v1/runs/" + failedRun + "/jobs/test/logs": log("FAIL\n"),
	}
	path := t.TempDir() + "/run.json"
	require.NoError(t, os.WriteFile(path, []byte(`{"name": "build", "jobs": [{"name": "vet", "argv": ["x"]}, {"name": "test", "argv": ["y"]}]}`), 0o600))
	s := invoke(t, []string{f.serve(t)}, nil, "run", "submit", path, "--follow")
	require.Equal(t, ExitFailed, s.code)
	require.ElementsMatch(t, []string{"vet  | vet: ok", "test | FAIL", "test | FAIL"}, strings.Split(strings.TrimSpace(s.out.String()), "\n"), "the logs alone, of both attempts")
	require.Contains(t, s.err.String(), "failed  build  "+failedRun)
	require.Contains(t, s.err.String(), "FY-CLI-007")

	f["GET /v1/runs/"+failedRun] = run(runner.RunSucceeded)
	s = invoke(t, []string{f.serve(t)}, nil, "run", "submit", path, "--follow", "-o", "json")
	require.Zero(t, s.code, s.err.String())
	lines := strings.Split(strings.TrimSpace(s.out.String()), "\n")
	var last runner.RunDocument
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, "Run", last.Kind, "the run follows its logs")
	require.Equal(t, runner.RunSucceeded, last.State)
}

func TestSubmitPacksAndUploadsTheSource(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/.git", 0o755))
	for name, text := range map[string]string{"/a.txt": "a", "/.git/secret": "no"} {
		require.NoError(t, os.WriteFile(dir+name, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("/etc/passwd", dir+"/out"))
	unpacked := t.TempDir() + "/u"
	var got runner.RunSpec
	var uploads int
	f := fleet{
		"POST /v1/sources": func(w http.ResponseWriter, r *http.Request) {
			uploads++
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.EqualValues(t, r.ContentLength, len(b))
			require.NotEmpty(t, r.Header.Get("Content-Digest"))
			_, err = artifact.UnpackZstd(context.Background(), strings.NewReader(string(b)), unpacked, artifact.Limits{})
			require.NoError(t, err)
			access.WriteJSON(w, http.StatusCreated, runner.SourceDocument{Digest: artifact.DigestOf(b).String(), Size: int64(len(b))})
		},
		"POST /v1/runs": func(w http.ResponseWriter, r *http.Request) {
			require.NoError(t, access.ReadJSON(w, r, &got))
			access.WriteJSON(w, http.StatusCreated, run(runner.RunRunning))
		},
	}
	// The first daemon is lost in the middle of the upload.
	var lost atomic.Int32
	broken := fleet{"POST /v1/sources": func(http.ResponseWriter, *http.Request) { lost.Add(1); panic(http.ErrAbortHandler) }, "POST /v1/runs": cluster.ErrNoQuorum}
	s := invoke(t, []string{dead(t), broken.serve(t), f.serve(t)}, nil, "run", "submit", "--source", dir, "--", "true")
	require.Zero(t, s.code, s.err.String())
	require.EqualValues(t, 1, lost.Load())
	require.Equal(t, 1, uploads)
	_, err := artifact.ParseDigest(got.Source)
	require.NoError(t, err)
	held, err := os.ReadDir(unpacked)
	require.NoError(t, err)
	require.Len(t, held, 1, "neither .git nor the link that leads out")
	require.Equal(t, "a.txt", held[0].Name())
	require.Contains(t, s.err.String(), "source "+dir+": 1 entry, 1 B, ")
	require.Contains(t, s.err.String(), "left out: out\n")
	s = invoke(t, []string{f.serve(t)}, nil, "run", "submit", "--source", dir+"/a.txt", "--", "true")
	require.Equal(t, ExitUsage, s.code)
}
