// Jobs that a scenario holds and lets go: submitting them, following them to their end, asking daemons about them.

package scenario

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// gate holds jobs: one that asks for it waits until the scenario opens it.
type gate string

// place is a path of this name that jobs and scenarios share.
func (w *World) place(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(w.Dir(), "shared")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return filepath.Join(dir, name)
}

// gate makes a gate of this name, closed also when an earlier scenario opened one.
func (w *World) gate(t testing.TB, name string) gate {
	t.Helper()
	path := w.place(t, name)
	require.NoError(t, os.RemoveAll(path))
	return gate(path)
}

func (g gate) open(t testing.TB) {
	t.Helper()
	require.NoError(t, os.WriteFile(string(g), nil, 0o644))
}

// wait is the shell command that waits for the gate.
func (g gate) wait() string { return "until [ -e " + string(g) + " ]; do sleep 0.05; done" }

// shell is a job of one shell script for the agents that carry the labels.
func shell(name, script string, labels ...string) runner.JobSpec {
	return runner.JobSpec{Name: name, Argv: []string{"sh", "-c", script}, Labels: labels}
}

// submit hands a run to any daemon.
func (w *World) submit(t testing.TB, name string, jobs ...runner.JobSpec) string {
	t.Helper()
	return w.submitSpec(t, runner.RunSpec{Name: name, Jobs: jobs})
}

func (w *World) submitSpec(t testing.TB, spec runner.RunSpec) string {
	t.Helper()
	return w.Accepted(t, 0, spec).ID
}

// Accepted hands a run to the i-th of the daemons that run, again under the same key
// while it says that it is unavailable: one whose PostgreSQL was away a moment ago may not have noticed yet,
// whatever its status says.
func (w *World) Accepted(t testing.TB, i int, spec runner.RunSpec) runner.Run {
	t.Helper()
	ctx, key := bounded(t), uuid.New()
	for {
		run, err := w.submitAs(ctx, key, i, spec)
		var refused *fleet.Refusal
		if err == nil {
			return run
		}
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusServiceUnavailable, refused.Status, "%v", err)
		elapse(t, 50*time.Millisecond)
	}
}

// ask reads a document from any daemon that runs.
func (w *World) ask(t testing.TB, method, path string, body, answer any) {
	t.Helper()
	n := w.running(t)
	require.NoError(t, n.Call(bounded(t), method, path, body, answer))
}

// running is the first daemon that runs.
func (w *World) running(t testing.TB) *fleet.Node {
	t.Helper()
	nodes := w.Nodes()
	i := slices.IndexFunc(nodes, func(n *fleet.Node) bool { return n.State() == "running" })
	require.GreaterOrEqual(t, i, 0, "no daemon runs")
	return nodes[i]
}

// job reads one job of a run.
func (w *World) job(t testing.TB, run, name string) runner.Job {
	t.Helper()
	var d runner.RunDocument
	w.ask(t, http.MethodGet, "/v1/runs/"+run, nil, &d)
	i := slices.IndexFunc(d.Jobs, func(j runner.Job) bool { return j.Name == name })
	require.GreaterOrEqual(t, i, 0, "run %s has no job %s", run, name)
	return d.Jobs[i]
}

// started waits until an agent runs a job and returns the agent's name.
func (w *World) started(t testing.TB, run, name string) (agent string) {
	t.Helper()
	eventually(t, "job "+name+" runs", func() bool {
		for _, l := range w.job(t, run, name).Leases {
			if l.State == runner.LeaseActive && l.AcceptedAt != nil {
				agent = l.Agent
				return true
			}
		}
		return false
	})
	return agent
}

// ended waits for the end of a run and returns it with its jobs.
func (w *World) ended(t testing.TB, run string, want runner.RunState) runner.Run {
	t.Helper()
	got, err := w.WaitRun(bounded(t), run)
	require.NoError(t, err)
	for _, j := range got.Jobs {
		if want == runner.RunSucceeded {
			require.Equal(t, runner.JobSucceeded, j.State, "%s: %s", j.Name, j.Reason)
		}
	}
	require.Equal(t, want, got.State)
	return got
}

// waitsFor waits until a daemon names the reason why a job waits, and returns it.
func (w *World) waitsFor(t testing.TB, run, job string, code scheduler.ReasonCode) (found scheduler.Reason) {
	t.Helper()
	eventually(t, job+" waits for "+string(code), func() bool {
		var why scheduler.WhyDocument
		w.ask(t, http.MethodGet, "/v1/runs/"+run+"/why", nil, &why)
		for _, j := range why.Jobs {
			for _, r := range j.Reasons {
				if j.Job == job && r.Code == code {
					found = r
					return true
				}
			}
		}
		return false
	})
	require.NotEmpty(t, found.Message)
	return found
}

// starts counts what the agents' own logs say of a run's job: how often each attempt was started.
func (w *World) starts(t testing.TB, job string) map[int]int {
	t.Helper()
	all := map[int]int{}
	for _, entries := range w.journals(t) {
		for _, e := range entries {
			if e.Job == job && e.What == runner.EntryStart {
				all[e.Attempt]++
			}
		}
	}
	return all
}
