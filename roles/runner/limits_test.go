// Tasks that take too much of their machine.

package runner_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestLimits: a task that takes too much of its machine is killed whole and
// says why; its neighbour runs on.
func TestLimits(t *testing.T) {
	neighbour := task(t, `echo $$ > pids; exec sleep 300`)
	end, exits := started(t, processes(), neighbour)
	pid := pids(t, neighbour.Dir, 1)[0]
	for name, c := range map[string]struct {
		limits runner.Limits
		script string
		reason string
	}{
		"fork bomb":  {runner.Limits{Processes: 64}, `bomb() { bomb | bomb & }; bomb; sleep 300`, "more than 64 processes"},
		"many":       {runner.Limits{Processes: 20}, `for i in $(seq 40); do setsid sleep 300 & done; sleep 300`, "more than 20 processes"},
		"disk":       {runner.Limits{Disk: 8 << 20}, `mkdir -p a/b; head -c 16000000 /dev/zero > a/b/c; sleep 300`, "more than 8388608 bytes"},
		"full disk":  {runner.Limits{Disk: 64 << 20, DiskFree: 1 << 60}, `head -c 6000000 /dev/zero > c; sleep 300`, "are free on the agent's disk"},
		"no culprit": {runner.Limits{DiskFree: 1 << 60}, `echo small > c; sleep 1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := processes()
			p.Limits = c.limits
			x := p.Run(t.Context(), task(t, c.script), &bytes.Buffer{})
			require.NoError(t, x.Err)
			if c.reason == "" {
				require.Empty(t, x.Limit)
				require.Equal(t, 0, *x.Code)
				return
			}
			require.Contains(t, x.Limit, c.reason)
		})
	}
	t.Cleanup(func() {
		require.False(t, ended(pid), "the neighbour was left alone")
		end(nil)
		exitSoon(t, exits)
	})
}

// TestHostileJobHarmsItself: a fork bomb and a flood fail or end by themselves,
// while the agent serves the job beside them.
func TestHostileJobHarmsItself(t *testing.T) {
	ex := processes()
	ex.Limits = runner.Limits{Processes: 64}
	w := newWarehouse()
	c := carry(t, t.TempDir(), w, ex)
	c.begin(shell("bomb", `bomb() { bomb | bomb & }; bomb; sleep 300`))
	c.begin(shell("beside", `sleep 0.3; echo done`))
	ended := map[string]runner.Complete{}
	for len(ended) < 2 {
		done := c.ends()
		ended[done.Lease] = done
		say(t, c.Link, runner.Message{Completed: &runner.Completed{Lease: done.Lease, Accepted: true}})
	}
	require.Equal(t, runner.Failed, ended["bomb"].Outcome)
	require.Contains(t, ended["bomb"].Reason, "killed: more than 64 processes")
	require.Equal(t, runner.Succeeded, ended["beside"].Outcome, ended["beside"].Reason)
	require.Equal(t, "done\n", w.theLog(t, "beside"))
}

// TestPriorityIsKeptFromJobs: the supervisor comes before what it watches, and passes
// none of that on: a job has the priority that the agent was started with.
func TestPriorityIsKeptFromJobs(t *testing.T) {
	own, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	require.NoError(t, err)
	own = 20 - own // the system call counts from the other end
	for _, more := range []int{0, 5} {
		var out bytes.Buffer
		ex := processes()
		ex.Supervisor = append([]string{"nice", "-n", strconv.Itoa(more)}, ex.Supervisor...)
		x := ex.Run(t.Context(), task(t, `nice; sh -c nice`), &out)
		require.NoError(t, x.Err)
		require.Equal(t, strings.Repeat(fmt.Sprintln(min(own+more, 19)), 2), out.String())
	}
}
