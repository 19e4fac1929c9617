// Logs: what a pipe, a terminal and a program get, and logs that are cut again and again.

package cli

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

func TestLogsInAPipeAreTheBytesOfTheJob(t *testing.T) {
	s := invoke(t, []string{plane().serve(t)}, nil, "run", "logs", failedRun, "test")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "\x1b[31mFAIL\x1b[0m TestX\x1b]0;evil\a\npanic: late\rend", s.out.String())
}

func TestLogsOnATerminal(t *testing.T) {
	endpoint := plane().serve(t)
	coloured := invoke(t, []string{endpoint}, at(80), "run", "logs", failedRun, "test")
	require.Equal(t, "\x1b[31mFAIL\x1b[0m TestX?]0;evil?\x1b[0m\npanic: late\nend\n", coloured.out.String(), "colours stay, nothing else can steer the terminal")
	grey := invoke(t, []string{endpoint}, at(80), "run", "logs", failedRun, "test", "--no-color")
	require.Equal(t, "FAIL TestX?]0;evil?\npanic: late\nend\n", grey.out.String())
	several := invoke(t, []string{endpoint}, at(80), "run", "logs", failedRun, "--no-color")
	require.Equal(t, "vet  | vet: ok\ntest | FAIL TestX?]0;evil?\ntest | panic: late\ntest | end\n", several.out.String())
}

func TestLogsAsDocuments(t *testing.T) {
	endpoint := plane().serve(t)
	s := invoke(t, []string{endpoint}, nil, "run", "logs", failedRun, "-o", "json")
	require.Zero(t, s.code, s.err.String())
	var got []string
	for line := range strings.Lines(s.out.String()) {
		var l LogLine
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		require.Equal(t, "LogLine", l.Kind)
		got = append(got, l.Job+" "+strconv.Itoa(l.Attempt)+" "+l.Text)
	}
	require.Equal(t, []string{"vet 1 vet: ok", "test 2 \x1b[31mFAIL\x1b[0m TestX\x1b]0;evil\a", "test 2 panic: late\rend"}, got)
	s = invoke(t, []string{endpoint}, nil, "run", "logs", failedRun, "vet", "-o", "yaml")
	require.Equal(t, "---\napiVersion: forgeyard.dev/v1\nkind: LogLine\nrun: "+failedRun+"\njob: vet\nattempt: 1\ntext: 'vet: ok'\n", s.out.String())
	s = invoke(t, []string{endpoint}, nil, "run", "logs", failedRun, "-o", "name")
	require.Equal(t, "log/"+failedRun+"/vet\nlog/"+failedRun+"/test\n", s.out.String())
}

func TestLogsOfAJobThatHasNotBegun(t *testing.T) {
	s := invoke(t, []string{plane().serve(t)}, nil, "run", "logs", waitingRun, "test")
	require.Zero(t, s.code)
	require.Empty(t, s.out.String())
	require.Contains(t, s.err.String(), "forgeyard run why "+waitingRun+" test")
}

// cutter is a daemon, or two of them, that cuts the stream of a log at random places.
type cutter struct {
	text string
	mu   sync.Mutex
	rng  *rand.Rand
	cuts int // that are left
	made map[string]int
}

func (c *cutter) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	end, kind := len(c.text), "whole"
	if c.cuts > 0 {
		c.cuts--
		// Near enough to what was read that every cut happens before the log has ended.
		end = min(len(c.text)-1, offset+c.rng.IntN(2*len(c.text)/60))
		kind = []string{"abort", "abort", "refuse", "empty"}[c.rng.IntN(4)]
	}
	c.made[kind]++
	c.mu.Unlock()
	switch kind {
	case "refuse":
		access.WriteError(w, cluster.ErrNoQuorum)
	case "empty": // as a daemon that stops answers a log that has not begun
	case "abort":
		serveLog(w, r, c.text, end)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		serveLog(w, r, c.text, end)
	}
}

func TestLogsGoOnAfterCuts(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 3000 {
		text.WriteString("line " + strconv.Itoa(i) + " with umlauts äöü\n")
	}
	text.WriteString("no newline at the end")
	for seed := range uint64(4) {
		c := &cutter{text: text.String(), rng: rand.New(rand.NewPCG(seed, 1)), cuts: 50, made: map[string]int{}}
		f := plane()
		f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = c.serve
		endpoints := []string{f.serve(t), f.serve(t)}
		follow := []string{"run", "logs", failedRun, "vet"}
		if seed%2 == 1 {
			follow = append(follow, "-f")
		}
		s := invoke(t, endpoints, nil, follow...)
		require.Zero(t, s.code, s.err.String())
		require.True(t, text.String() == s.out.String(), "seed %d: %d bytes came of %d", seed, s.out.Len(), text.Len())
		require.Zero(t, c.cuts)
		require.Positive(t, c.made["abort"])
		require.Positive(t, c.made["refuse"])
		require.Positive(t, c.made["empty"])
	}
}

// A log that comes from another place than the one asked for would tear the output.
func TestLogFromTheWrongOffset(t *testing.T) {
	f := plane()
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(runner.LogOffsetHeader, "5")
		_, _ = w.Write([]byte("x"))
	}
	s := invoke(t, []string{f.serve(t)}, nil, "run", "logs", failedRun, "vet")
	require.Equal(t, ExitFailed, s.code)
	require.Empty(t, s.out.String())
}

func TestLogsWithoutAStoreFailAtOnce(t *testing.T) {
	f := plane()
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = runner.ErrNoArtifactStore
	s := invoke(t, []string{f.serve(t), f.serve(t)}, nil, "run", "logs", failedRun, "vet", "-o", "json")
	require.Equal(t, ExitFailed, s.code)
	require.Equal(t, "FY-RUN-003", s.problem(t).Code)
	require.NotEqual(t, client.CodeUnreachable, s.problem(t).Code)
}

// A later attempt ends the wait for the log of one that was lost.
func TestLogsFollowAttempts(t *testing.T) {
	t.Parallel()
	first, second := run(runner.RunRunning), run(runner.RunSucceeded)
	first.Jobs = first.Jobs[:1]
	first.Jobs[0].State, first.Jobs[0].Attempt = runner.JobLeased, 1
	second.Jobs[0].Attempt = 2
	second.Counts, second.Jobs[0].FinishedAt = runner.Counts{Succeeded: 1}, later(9700*time.Millisecond)
	f := plane()
	f["GET /v1/runs/"+failedRun] = answers(first, first, second)
	f["GET /v1/runs/"+failedRun+"/jobs/vet/logs"] = func(w http.ResponseWriter, r *http.Request) {
		text := map[string]string{"1": "one\n", "2": "two\n"}[r.URL.Query().Get("attempt")]
		serveLog(w, r, text, len(text))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Get("attempt") == "1" && r.URL.Query().Get("follow") == "true" {
			<-r.Context().Done() // the agent never tells how it ended
		}
	}
	s := invoke(t, []string{f.serve(t)}, nil, "run", "logs", "-f", failedRun, "vet")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "one\ntwo\n", s.out.String())
	require.Contains(t, s.err.String(), "vet: attempt 1 was lost")
	require.Contains(t, s.err.String(), "vet: attempt 2\n")
	require.True(t, strings.HasSuffix(s.err.String(), "\nrun "+failedRun+" succeeded in 9.7 s\n"), s.err.String())
}

// Following ends with one line on standard error that says how it went; documents say it themselves.
func TestFollowedLogsEndWithAVerdict(t *testing.T) {
	t.Parallel()
	failed := run(runner.RunFailed)
	failed.Jobs[0].FinishedAt, failed.Jobs[1].FinishedAt = later(time.Second), later(9700*time.Millisecond)
	running := run(runner.RunRunning)
	for name, c := range map[string]struct {
		run  runner.RunDocument
		args string
		want string
	}{
		"failed":           {failed, "", "run " + failedRun + " failed in 9.7 s: 1 of 2 jobs did not succeed\n"},
		"documents":        {failed, "-o json", ""},
		"one job of a run": {running, "vet", "job vet of run " + failedRun + " succeeded; the run goes on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := plane()
			f["GET /v1/runs/"+failedRun] = c.run
			for _, job := range []string{"vet", "test"} {
				f["GET /v1/runs/"+failedRun+"/jobs/"+job+"/logs"] = func(w http.ResponseWriter, r *http.Request) { serveLog(w, r, "x\n", 2) }
			}
			s := invoke(t, []string{f.serve(t)}, nil, append([]string{"run", "logs", "-f", failedRun}, strings.Fields(c.args)...)...)
			require.Zero(t, s.code, s.err.String())
			if c.want == "" {
				require.NotContains(t, s.err.String(), "run ")
				return
			}
			require.True(t, strings.HasSuffix(s.err.String(), c.want), s.err.String())
		})
	}
}
