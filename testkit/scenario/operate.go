// What operators and users ask for while work runs: the end of a run, the rest of an agent.

package scenario

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

func contains(b []byte, text string) bool { return bytes.Contains(b, []byte(text)) }

// CancelTree cancels a run whose job has left its process group, its session and
// its parents, and ignores SIGTERM. Not one process of it is left.
func CancelTree(t testing.TB, w *World) {
	const variable = "TREE_OF"
	word := variable + "=" + w.Dir() // other fleets of this machine may do the same
	j := shell("tree", `trap "" TERM INT HUP
setsid sh -c 'trap "" TERM; sleep 600 & (setsid sleep 600 &) ; sleep 600' &
(nohup sleep 600 >/dev/null 2>&1 &)
sleep 600`)
	j.Env = map[string]string{variable: w.Dir()}
	run := w.submit(t, "tree", j)
	agent := w.started(t, run, "tree")
	const sleepers = 5
	eventually(t, "the tree has grown", func() bool { return len(marked(t, word)) >= sleepers+2 })
	w.ask(t, http.MethodPost, "/v1/runs/"+run+"/cancel", runner.CancelRequest{Reason: "no longer wanted"}, nil)
	ended := w.ended(t, run, runner.RunCancelled).Jobs[0]
	require.Equal(t, runner.Cancelled, ended.Leases[0].Outcome)
	require.Contains(t, ended.Reason, "no longer wanted")
	require.Empty(t, marked(t, word), "processes outlived the cancelled job")

	w.ended(t, w.submit(t, "after-tree", shell("next", "true", agent)), runner.RunSucceeded)
}

// RestAgent drains an agent that works, then quarantines it: what runs ends,
// nothing new comes, `why` says so, and both are undone.
func RestAgent(t testing.TB, w *World, agent string) {
	g := w.gate(t, "rest")
	running := w.submit(t, "rest", shell("work", g.wait(), agent))
	w.started(t, running, "work")
	for _, change := range []struct{ set, unset, state string }{{"drain", "undrain", "draining"}, {"quarantine", "release", "quarantined"}} {
		w.ask(t, http.MethodPost, "/v1/agents/"+agent+"/"+change.set, map[string]string{"reason": "new disk"}, nil)
		next := w.submit(t, "next", shell("next", "true", agent))
		why := w.waitsFor(t, next, "next", scheduler.WaitsForCapacity)
		require.Len(t, why.Agents, 1)
		require.Equal(t, agent, why.Agents[0].Agent)
		require.Equal(t, change.state, why.Agents[0].State)
		if change.set == "drain" {
			g.open(t)
			w.ended(t, running, runner.RunSucceeded)
		}
		require.Equal(t, runner.JobQueued, w.job(t, next, "next").State)
		w.ask(t, http.MethodPost, "/v1/agents/"+agent+"/"+change.unset, nil, nil)
		w.ended(t, next, runner.RunSucceeded)
	}
}
