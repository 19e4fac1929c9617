// Agents that are cut off, stopped past their lease, or killed: their work goes on, or is done once more, and never twice at a time.

package scenario

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// LeaseEnv shortens the leases of a fleet whose agents shall lose one; give it in Options.Env.
const LeaseEnv = "FORGEYARD_LEASE_TTL=12s"

// agentNamed finds an agent of the fleet.
func (w *World) agentNamed(t testing.TB, name string) *fleet.Agent {
	t.Helper()
	for _, a := range w.Agents() {
		if a.Name == name {
			return a
		}
	}
	require.Fail(t, "no such agent", name)
	return nil
}

// alone makes a script fail when another process runs it at the same time: what
// holds the lock is the job's own processes, so it speaks for what really ran.
func (w *World) alone(t testing.TB, name, script string) string {
	t.Helper()
	return "exec 9>" + w.place(t, name+".lock") + "; flock -n 9 || { echo two at a time; exit 66; }\n" + script
}

// CutOff is an agent without a link that has work.
type CutOff struct {
	w       *World
	agent   string
	run     string
	goOn    gate
	since   time.Time
	dropped uint64
}

// CutAgent cuts an agent off from all daemons while it runs a job.
func CutAgent(t testing.TB, w *World, agent string) *CutOff {
	c := &CutOff{w: w, agent: agent, goOn: w.gate(t, "cut")}
	c.run = w.submit(t, "cut-off", shell("work", w.alone(t, "cut", "echo before; "+c.goOn.wait()+"; echo after"), agent))
	require.Equal(t, agent, w.started(t, c.run, "work"))
	c.since, c.dropped = time.Now(), w.Relay().Dropped()
	w.CutAgent(agent)
	return c
}

// Mend lets the job end while its agent has no link, heals the link span after
// the cut, and requires that the one attempt counted: shorter than a lease, so
// nobody else ran the job, and its completion and log were accepted afterwards.
func (c *CutOff) Mend(t testing.TB, span time.Duration) {
	c.goOn.open(t)
	elapse(t, span-time.Since(c.since))
	require.Equal(t, runner.JobLeased, c.w.job(t, c.run, "work").State, "a daemon heard of it over a cut link")
	require.Greater(t, c.w.Relay().Dropped(), c.dropped, "nothing was cut")
	c.w.HealAgent(c.agent)
	j := c.w.ended(t, c.run, runner.RunSucceeded).Jobs[0]
	require.Equal(t, 1, j.Attempt)
	require.Equal(t, map[int]int{1: 1}, c.w.starts(t, j.ID))
	require.Equal(t, "before\nafter\n", j.Leases[0].OutputTail)
	t.Logf("%s was cut off for %s, and ended its job meanwhile", c.agent, span)
}

// hangs is a job that never ends in its first attempt and ends at once in the second.
func (w *World) hangs(t testing.TB, name string) (job runner.JobSpec, marked string) {
	marked = w.place(t, name+".attempt")
	return shell("work", w.alone(t, name, "[ $FORGEYARD_ATTEMPT = 1 ] || exit 0; touch "+marked+"; while :; do sleep 0.1; done")), marked
}

// PauseAgent stops an agent past its lease. Its job is killed meanwhile, run once
// more by another agent when the lease is over and not before, and what the agent
// says when it wakes changes nothing; it then works again. The fleet needs LeaseEnv.
func PauseAgent(t testing.TB, w *World) {
	ctx := bounded(t)
	job, marked := w.hangs(t, "paused")
	run := w.submit(t, "paused", job)
	name := w.started(t, run, "work")
	eventually(t, "the job runs", func() bool { return exists(marked) })
	agent := w.agentNamed(t, name)
	require.NoError(t, agent.Pause(ctx))
	j := w.ended(t, run, runner.RunSucceeded).Jobs[0]
	require.NoError(t, agent.Resume())
	require.Equal(t, 2, j.Attempt)
	require.Len(t, j.Leases, 2)
	require.Equal(t, runner.LeaseExpired, j.Leases[0].State)
	require.NotEqual(t, name, j.Leases[1].Agent)
	require.False(t, j.Leases[1].LeasedAt.Before(j.Leases[0].ExpiresAt), "leased again before the lease was over")

	again := w.submit(t, "awake", shell("work", "true", name))
	w.ended(t, again, runner.RunSucceeded)
	require.Equal(t, map[int]int{1: 1, 2: 1}, w.starts(t, j.ID))
	after := w.job(t, run, "work")
	require.Equal(t, 2, after.Attempt)
	require.Equal(t, runner.LeaseExpired, after.Leases[0].State)
	t.Logf("%s was stopped; attempt 2 began %s after attempt 1", name, j.Leases[1].LeasedAt.Sub(j.Leases[0].LeasedAt).Round(time.Millisecond))
}

// KillAgent kills an agent with kill -9 and starts it again. What it ran is dead
// before anybody runs it once more; the agent itself gives its lease up.
func KillAgent(t testing.TB, w *World) {
	job, marked := w.hangs(t, "killed")
	run := w.submit(t, "killed", job)
	name := w.started(t, run, "work")
	eventually(t, "the job runs", func() bool { return exists(marked) })
	agent := w.agentNamed(t, name)
	require.NoError(t, agent.Kill())
	require.NoError(t, agent.Start())
	j := w.ended(t, run, runner.RunSucceeded).Jobs[0]
	require.Equal(t, 2, j.Attempt)
	require.Equal(t, map[int]int{1: 1, 2: 1}, w.starts(t, j.ID))
	t.Logf("%s was killed; attempt 2 began %s after attempt 1", name, j.Leases[1].LeasedAt.Sub(j.Leases[0].LeasedAt).Round(time.Millisecond))
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// marked lists the processes of this machine whose environment holds a text.
func marked(t testing.TB, text string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range all {
		if env, err := os.ReadFile(file); err == nil && contains(env, text) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
