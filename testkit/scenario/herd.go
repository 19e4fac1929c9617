// Many agents hit at once, each in the middle of a job of its own: every one of them is checked.

package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// herd is one run whose jobs each keep one agent. The fleet's agents must have one slot.
type herd struct {
	w      *World
	run    string
	agents map[string]string // job → the agent that runs its first attempt
	goOn   map[string]gate   // job → lets it end; nil when its first attempt never ends
}

// gather starts count jobs on as many agents. Held jobs wait for their gates;
// others never end in their first attempt and end at once in the second.
func gather(t testing.TB, w *World, name string, count int, held bool) *herd {
	t.Helper()
	mark := fmt.Sprintf("%s-%d", name, now())
	h := &herd{w: w, agents: map[string]string{}, goOn: map[string]gate{}}
	var jobs []runner.JobSpec
	for i := range count {
		job := fmt.Sprint("work-", i)
		own := mark + "-" + job
		script := "[ $FORGEYARD_ATTEMPT = 1 ] || exit 0; exec sleep 600"
		if held {
			h.goOn[job] = w.gate(t, own)
			script = "echo before; until [ -e " + string(h.goOn[job]) + " ]; do sleep 0.2; done; echo after"
		}
		jobs = append(jobs, shell(job, w.alone(t, own, script)))
	}
	h.run = w.submit(t, name, jobs...)
	eventually(t, "each job has an agent", func() bool {
		for _, j := range h.jobs(t) {
			if l := j.Leases; len(l) == 1 && l[0].State == runner.LeaseActive && l[0].AcceptedAt != nil {
				h.agents[j.Name] = l[0].Agent
			}
		}
		return len(h.agents) == count
	})
	h.begun(t)
	return h
}

// begun waits until the agents' own logs say that each first attempt was started.
func (h *herd) begun(t testing.TB) {
	t.Helper()
	jobs := h.jobs(t)
	eventually(t, "each job was started", func() bool {
		return !slices.ContainsFunc(jobs, func(j runner.Job) bool { return h.w.starts(t, j.ID)[1] == 0 })
	})
}

func (h *herd) jobs(t testing.TB) []runner.Job {
	t.Helper()
	var d runner.RunDocument
	h.w.ask(t, http.MethodGet, "/v1/runs/"+h.run, nil, &d)
	return d.Jobs
}

// job reads one of the jobs.
func (h *herd) job(t testing.TB, name string) runner.Job {
	t.Helper()
	return h.w.job(t, h.run, name)
}

// undisturbed requires that a job ended well in its one attempt, with its whole log.
func (h *herd) undisturbed(t testing.TB, name string) {
	t.Helper()
	eventually(t, "the log of "+name+" is whole", func() bool { return h.job(t, name).Leases[0].LogFinal })
	j := h.job(t, name)
	require.Equal(t, runner.JobSucceeded, j.State, j.Reason)
	require.Equal(t, 1, j.Attempt, "%s was repeated", name)
	require.Equal(t, "before\nafter\n", j.Leases[0].OutputTail)
	require.Equal(t, map[int]int{1: 1}, h.w.starts(t, j.ID), "starts of %s", name)
}

// CutAgents cuts count agents off from all daemons for a span that is shorter than
// a lease. Each one's job ends meanwhile; its completion and its log are accepted
// afterwards, and nobody else ran it. It returns how many agents it hit.
func CutAgents(t testing.TB, w *World, count int, span time.Duration) int {
	h := gather(t, w, "cut", count, true)
	since, dropped := time.Now(), w.Relay().Dropped()
	for job, agent := range h.agents {
		w.CutAgent(agent)
		h.goOn[job].open(t)
	}
	elapse(t, span-time.Since(since))
	for _, j := range h.jobs(t) {
		require.Equal(t, runner.JobLeased, j.State, "a daemon heard of %s over a cut link", j.Name)
	}
	require.GreaterOrEqual(t, w.Relay().Dropped(), dropped+uint64(count), "not every agent was cut off")
	for _, agent := range h.agents {
		w.HealAgent(agent)
	}
	w.ended(t, h.run, runner.RunSucceeded)
	for job := range h.agents {
		h.undisturbed(t, job)
	}
	return len(h.agents)
}

// KillDaemonsOfAgents kills one daemon after the other while its agents work.
// Each of their jobs ends in its one attempt, and another daemon accepts that
// while theirs is dead. It returns how many agents lost their daemon so.
func KillDaemonsOfAgents(t testing.TB, w *World, count int) (hit int) {
	h := gather(t, w, "orphans", count, true)
	for _, n := range w.Nodes() {
		var orphans []string
		for job, agent := range h.agents {
			if h.job(t, job).FinishedAt == nil && w.linked(t, agent) == n.ID.String() {
				orphans = append(orphans, job)
			}
		}
		if len(orphans) == 0 {
			continue
		}
		require.NoError(t, n.Kill())
		for _, job := range orphans {
			h.goOn[job].open(t)
		}
		for _, job := range orphans {
			eventually(t, job+" ends without "+n.Name, func() bool { return h.job(t, job).FinishedAt != nil })
		}
		require.Equal(t, "dead", n.State())
		for _, job := range orphans {
			h.undisturbed(t, job)
		}
		hit += len(orphans)
		require.NoError(t, n.Resume(bounded(t)))
		w.whole(t, n)
	}
	for _, g := range h.goOn { // those whose agent was between two daemons at every kill
		g.open(t)
	}
	w.ended(t, h.run, runner.RunSucceeded)
	return hit
}

// linked is the id of the daemon that holds an agent's link, "" when none does.
func (w *World) linked(t testing.TB, agent string) (node string) {
	t.Helper()
	require.NoError(t, w.Query(bounded(t), `SELECT coalesce(node, '') FROM forge.agents WHERE id = $1`, []any{agent}, &node))
	return node
}

// AgentFault takes an agent from its work for longer than a lease.
type AgentFault struct {
	Make, Undo func(testing.TB, *World, *fleet.Agent)
}

// PauseFault stops the agent's process; its job goes on until its supervisor ends it.
func PauseFault() AgentFault {
	return AgentFault{
		Make: func(t testing.TB, _ *World, a *fleet.Agent) { require.NoError(t, a.Pause(bounded(t))) },
		Undo: func(t testing.TB, _ *World, a *fleet.Agent) { require.NoError(t, a.Resume()) },
	}
}

// CutFault takes the agent's links.
func CutFault() AgentFault {
	return AgentFault{
		Make: func(_ testing.TB, w *World, a *fleet.Agent) { w.CutAgent(a.Name) },
		Undo: func(_ testing.TB, w *World, a *fleet.Agent) { w.HealAgent(a.Name) },
	}
}

// LoseLeases makes a fault to count agents, for span or until their leases are over
// and their jobs have ended elsewhere, whichever is later. Each job is run once
// more, by another agent, not before the first lease was over; what the hit agent
// says afterwards changes nothing, and it works again. The fleet needs LeaseEnv and
// as many agents again. It returns how many agents it hit.
func LoseLeases(t testing.TB, w *World, count int, span time.Duration, fault AgentFault) int {
	h := gather(t, w, "lost", count, false)
	since := time.Now()
	for _, agent := range h.agents {
		fault.Make(t, w, w.agentNamed(t, agent))
	}
	before := w.ended(t, h.run, runner.RunSucceeded).Jobs
	elapse(t, span-time.Since(since))
	for _, agent := range h.agents {
		fault.Undo(t, w, w.agentNamed(t, agent))
	}
	var awake []runner.JobSpec
	for job, agent := range h.agents {
		awake = append(awake, shell("again-"+job, "true", agent))
	}
	w.ended(t, w.submit(t, "awake", awake...), runner.RunSucceeded)
	for i, j := range h.jobs(t) {
		require.Equal(t, 2, j.Attempt, j.Name)
		require.Len(t, j.Leases, 2)
		require.Equal(t, runner.LeaseExpired, j.Leases[0].State, j.Name)
		require.Equal(t, h.agents[j.Name], j.Leases[0].Agent)
		require.NotContains(t, h.hit(), j.Leases[1].Agent, "%s was given to an agent that was not there", j.Name)
		require.False(t, j.Leases[1].LeasedAt.Before(j.Leases[0].ExpiresAt), "%s was leased again before its lease was over", j.Name)
		require.Equal(t, before[i].FinishedAt, j.FinishedAt, "the agent that woke changed %s", j.Name)
		require.Equal(t, map[int]int{1: 1, 2: 1}, w.starts(t, j.ID), "starts of %s", j.Name)
	}
	return len(h.agents)
}

// hit lists the agents that were hit.
func (h *herd) hit() (agents []string) {
	for _, a := range h.agents {
		agents = append(agents, a)
	}
	return agents
}
