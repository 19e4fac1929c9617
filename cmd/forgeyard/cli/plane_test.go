// The other commands of the job plane: finding runs, artifacts, cancel, why, agents, gc, completion and help.

package cli

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

func TestRunsAreFoundByWhatPeopleType(t *testing.T) {
	f := plane()
	endpoint := f.serve(t)
	for given, want := range map[string]string{
		failedRun: failedRun, "run/" + failedRun: failedRun, strings.ToLower(failedRun): failedRun, "build": failedRun,
		waitingRun: waitingRun, "release": waitingRun, "01jdvw0000000000000000run2"[:26]: waitingRun,
	} {
		s := invoke(t, []string{endpoint}, nil, "run", "show", given, "-o", "name")
		require.Zero(t, s.code, s.err.String())
		require.Equal(t, "run/"+want+"\n", s.out.String(), given)
	}
	s := invoke(t, []string{endpoint}, nil, "run", "show", "01JDVW")
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), `"01JDVW" may be any of `+waitingRun+", "+failedRun)
	s = invoke(t, []string{endpoint}, nil, "run", "show", "nothing")
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), "forgeyard run list")
	s = invoke(t, []string{endpoint}, nil, "run", "logs", failedRun, "nothing")
	require.Equal(t, ExitUsage, s.code)
	require.Contains(t, s.err.String(), "its jobs: vet, test")
}

func TestListAsksForPages(t *testing.T) {
	var got string
	f := fleet{"GET /v1/runs": func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.RawQuery
		access.WriteJSON(w, http.StatusOK, runner.RunListDocument{Runs: []runner.Run{}, Next: failedRun})
	}}
	s := invoke(t, []string{f.serve(t)}, nil, "run", "list", "--limit", "7", "--state", "failed", "--queue", "nightly", "--after", "run/"+waitingRun)
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, "after="+waitingRun+"&limit=7&queue=nightly&state=failed", got)
	require.Contains(t, s.out.String(), "more: forgeyard run list --limit 7 --state failed --queue nightly --after "+failedRun+"\n")
}

func TestCancel(t *testing.T) {
	var got runner.CancelRequest
	var path string
	f := plane()
	cancel := func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		require.NoError(t, access.ReadJSON(w, r, &got))
		access.WriteJSON(w, http.StatusOK, waiting())
	}
	f["POST /v1/runs/"+waitingRun+"/cancel"] = cancel
	s := invoke(t, []string{dead(t), f.serve(t)}, nil, "run", "cancel", "release", "test", "--reason", "wrong branch")
	require.Zero(t, s.code, s.err.String())
	require.Equal(t, runner.CancelRequest{Job: "test", Reason: "wrong branch"}, got)
	require.Equal(t, "/v1/runs/"+waitingRun+"/cancel", path)
	require.Equal(t, "asked for the end of job test of run "+waitingRun+"\nit is running, 1 of 3 jobs have ended\nnext: forgeyard run show "+waitingRun+"\n", s.out.String())
}

// packed is an artifact as daemons store it.
func packed(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/bin", 0o755))
	require.NoError(t, os.WriteFile(dir+"/bin/app", []byte("#!/bin/true\n"), 0o700))
	var b bytes.Buffer
	_, err := artifact.PackZstd(context.Background(), dir, []string{"bin/app"}, artifact.Limits{}, &b)
	require.NoError(t, err)
	return b.Bytes()
}

// left is a fleet in which one artifact is left, and served by a handler.
func left(b []byte, serve func(http.ResponseWriter, *http.Request)) fleet {
	f := plane()
	x := artifacts()
	x[0].Digest, x[0].Size = artifact.DigestOf(b).String(), int64(len(b))
	f["GET /v1/runs/"+waitingRun+"/artifacts"] = runner.ArtifactListDocument{APIVersion: apiVersion, Kind: "ArtifactList", Artifacts: x}
	f["GET /v1/runs/"+waitingRun+"/jobs/build/artifacts/binary"] = serve
	return f
}

func TestArtifactsAreFetchedAndVerified(t *testing.T) {
	b := packed(t)
	whole := left(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }).serve(t)
	cut := left(b, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}).serve(t)
	for place, named := range map[string][]string{
		"bin/app": {waitingRun, "build", "binary"}, "binary/bin/app": {waitingRun, "build"}, "build/binary/bin/app": {"release"},
	} {
		out := filepath.Join(t.TempDir(), "new", "out")
		s := invoke(t, []string{cut, whole}, nil, append(append([]string{"run", "artifacts"}, named...), "--out", out)...)
		require.Zero(t, s.code, s.err.String())
		info, err := os.Stat(filepath.Join(out, place))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
		require.Contains(t, s.out.String(), "verified")
		beside, err := os.ReadDir(filepath.Dir(out))
		require.NoError(t, err)
		require.Len(t, beside, 1, "nothing is left of the download")
		s = invoke(t, []string{whole}, nil, append(append([]string{"run", "artifacts"}, named...), "--out", out)...)
		require.Equal(t, ExitFailed, s.code, "nothing is replaced")
		require.Contains(t, s.err.String(), "FY-TAR-008")
	}
	file := filepath.Join(t.TempDir(), "a.tar.zst")
	for _, want := range []int{ExitOK, ExitRefused} {
		s := invoke(t, []string{whole}, nil, "run", "artifacts", waitingRun, "build", "binary", "--file", file)
		require.Equal(t, want, s.code, s.err.String())
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b, got)
	s := invoke(t, []string{whole}, nil, "run", "artifacts", waitingRun, "build", "binary", "--file", "-")
	require.Equal(t, string(b), s.out.String())

	other := left(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("x", len(b)))) }).serve(t)
	out := filepath.Join(t.TempDir(), "out")
	s = invoke(t, []string{other}, nil, "run", "artifacts", waitingRun, "build", "binary", "--out", out, "-o", "json")
	require.Equal(t, ExitFailed, s.code)
	require.Equal(t, "FY-CAS-009", s.problem(t).Code)
	require.NoDirExists(t, out)
	s = invoke(t, []string{whole}, nil, "run", "artifacts", waitingRun, "nothing", "--out", out)
	require.Equal(t, ExitUsage, s.code)
}

func TestNamesOfJobsStayBelowTheDirectory(t *testing.T) {
	for name, want := range map[string]string{"..": "%2E%2E", ".": "%2E", "a/../../b": "a%2F..%2F..%2Fb", "build": "build", "": ""} {
		require.Equal(t, want, plainName(name))
	}
}

func TestWhyNamesTheFix(t *testing.T) {
	until := when().Add(time.Minute)
	reason := func(r scheduler.Reason) scheduler.WhyDocument {
		return scheduler.WhyDocument{Run: waitingRun, At: when(), Scheduler: scheduler.RoleState{Active: r.Code != scheduler.WaitsForScheduler},
			Jobs: []scheduler.JobWhy{{Job: "test", State: "queued", Reasons: []scheduler.Reason{r}}}}
	}
	agent := func(state string) []scheduler.AgentFit {
		return []scheduler.AgentFit{{Agent: "agent-1", State: state, Slots: 2, Held: 2}}
	}
	for name, c := range map[string]struct {
		r    scheduler.Reason
		want []string
	}{
		"scheduler":   {scheduler.Reason{Code: scheduler.WaitsForScheduler, Message: "nobody schedules: no quorum"}, []string{"FAIL scheduler  nobody schedules", "fix: see who should schedule"}},
		"no agents":   {scheduler.Reason{Code: scheduler.WaitsForCapacity, Message: "the fleet has no agents"}, []string{"--   labels     nobody to ask", "FAIL capacity", "fix: start an agent"}},
		"busy":        {scheduler.Reason{Code: scheduler.WaitsForCapacity, Message: "1 busy", Agents: agent("busy")}, []string{"wait capacity   1 busy", "agent-1  busy  2/2 slots"}},
		"quarantined": {scheduler.Reason{Code: scheduler.WaitsForCapacity, Message: "1 quarantined", Agents: agent("quarantined")}, []string{"FAIL capacity", "fix: when agent-1 is well again: forgeyard agents release agent-1"}},
		"draining":    {scheduler.Reason{Code: scheduler.WaitsForCapacity, Message: "1 draining", Agents: agent("draining")}, []string{"forgeyard agents undrain agent-1"}},
		"away":        {scheduler.Reason{Code: scheduler.WaitsForCapacity, Message: "1 away", Agents: agent("away")}, []string{"forgeyard agents show agent-1"}},
		"backoff":     {scheduler.Reason{Code: scheduler.WaitsForBackoff, Message: "repeated later", Until: &until}, []string{"wait backoff", "until 2026-11-29T10:03:11Z"}},
		"turn":        {scheduler.Reason{Code: scheduler.WaitsForTurn, Message: "7 jobs come first"}, []string{"ok   capacity", "wait turn       7 jobs come first"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := plane()
			f["GET /v1/runs/"+waitingRun+"/why"] = reason(c.r)
			s := invoke(t, []string{f.serve(t)}, nil, "run", "why", waitingRun, "test")
			require.Zero(t, s.code, s.err.String())
			for _, want := range c.want {
				require.Contains(t, s.out.String(), want)
			}
		})
	}
	s := invoke(t, []string{plane().serve(t)}, nil, "run", "why", waitingRun, "build")
	require.Equal(t, "job build waits for nothing: it has succeeded\n", s.out.String())
	f := plane()
	f["GET /v1/runs/"+waitingRun+"/why"] = scheduler.WhyDocument{Run: waitingRun}
	s = invoke(t, []string{f.serve(t)}, nil, "run", "why", waitingRun)
	require.Equal(t, "run "+waitingRun+" waits for nothing: all its jobs have ended\n", s.out.String())
}

func TestAgentActs(t *testing.T) {
	for act, state := range map[string]runner.AgentState{
		"drain": runner.AgentDraining, "undrain": runner.AgentReady, "quarantine": runner.AgentQuarantined, "release": runner.AgentReady,
	} {
		var got runner.AgentRequest
		f := fleet{"POST /v1/agents/agent-1/" + act: func(w http.ResponseWriter, r *http.Request) {
			require.NoError(t, access.ReadJSON(w, r, &got))
			x := agents()[0]
			x.State = state
			access.WriteJSON(w, http.StatusOK, runner.AgentDocument{APIVersion: apiVersion, Kind: "Agent", AgentInfo: x})
		}}
		s := invoke(t, []string{f.serve(t)}, nil, "agents", act, "agent/agent-1", "--reason", "disk")
		require.Zero(t, s.code, s.err.String())
		require.Equal(t, "disk", got.Reason)
		require.Contains(t, s.out.String(), " is "+string(state)+" and runs 1 job\n")
	}
	s := invoke(t, nil, nil, "agents", "quarantine", "agent-1")
	require.Equal(t, ExitUsage, s.code, "a quarantine says why")
}

func TestCollect(t *testing.T) {
	var got artifact.CollectRequest
	f := fleet{"POST /v1/gc": func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, access.ReadJSON(w, r, &got))
		access.WriteJSON(w, http.StatusOK, artifact.Collection{Last: &artifact.Report{DryRun: got.DryRun, At: when(), Blobs: 9, Garbage: 3, Reclaimed: 2048}})
	}, "GET /v1/gc": artifact.Collection{}}
	s := invoke(t, []string{f.serve(t)}, nil, "gc", "run", "--dry-run")
	require.Zero(t, s.code, s.err.String())
	require.True(t, got.DryRun)
	require.True(t, strings.HasPrefix(s.out.String(), "would delete 3 of 9 blobs, 2.0 KiB of 0 B\n"), s.out.String())
	s = invoke(t, []string{f.serve(t)}, nil, "gc", "status")
	require.Equal(t, "no collection has been recorded; start one: forgeyard gc run\n", s.out.String())
}

func TestCompletion(t *testing.T) {
	endpoint := plane().serve(t)
	complete := func(endpoint string, words ...string) string {
		return invoke(t, []string{endpoint}, nil, append([]string{"__complete"}, words...)...).out.String()
	}
	require.True(t, strings.HasPrefix(complete(endpoint, "run", "show", ""), waitingRun+"\trelease running\n"+failedRun+"\tbuild failed\n"))
	require.True(t, strings.HasPrefix(complete(endpoint, "run", "logs", failedRun, ""), "vet\tsucceeded\ntest\tfailed\n"))
	require.True(t, strings.HasPrefix(complete(endpoint, "agents", "drain", ""), "agent-1\tready\nagent-2\tquarantined\n"))
	require.True(t, strings.HasPrefix(complete(endpoint, "run", "list", "-o", ""), "table\n"))
	require.True(t, strings.HasPrefix(complete(endpoint, "run", "list", "--state", ""), "running\n"))

	hung := fleet{"GET /v1/runs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}.serve(t)
	began := time.Now()
	out := complete(hung, "run", "show", "")
	require.Less(t, time.Since(began), 10*completionTime)
	require.Equal(t, ":4\n", out, "nothing is offered and nothing said")
}

// What every command has is told once.
func TestSharedFlagsAreToldOnce(t *testing.T) {
	root := New(stubs())
	require.Contains(t, root.UsageString(), "--endpoint")
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			text := sub.UsageString()
			require.NotContains(t, text, "--cert-key", sub.CommandPath())
			require.NotContains(t, text, "--no-input", sub.CommandPath())
			require.Contains(t, text, "forgeyard --help", sub.CommandPath())
			walk(sub)
		}
	}
	walk(root)
}
