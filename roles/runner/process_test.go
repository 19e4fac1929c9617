package runner_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func task(t *testing.T, script string) runner.Task {
	return runner.Task{Lease: "l", Run: "r", Job: "j", Attempt: 2, Argv: []string{"sh", "-c", script}, Env: map[string]string{"OWN": "value"}, Dir: t.TempDir()}
}

// pids waits for the file that a script writes its process ids to.
func pids(t *testing.T, dir string, n int) []int {
	t.Helper()
	var all []int
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "pids"))
		all = nil
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				all = append(all, pid)
			}
		}
		return err == nil && len(all) == n
	}, soon, time.Millisecond)
	return all
}

// gone waits until a process has ended; a zombie that nobody reaps here has.
func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	}, soon, time.Millisecond, "process %d outlives its task", pid)
}

func TestProcessExit(t *testing.T) {
	var out bytes.Buffer
	x := runner.Process{}.Run(t.Context(), task(t, `echo $OWN $FORGEYARD_LEASE $FORGEYARD_ATTEMPT; [ "$HOME" = "$(pwd)" ] || exit 9; exit 4`), &out)
	require.NoError(t, x.Err)
	require.Equal(t, 4, *x.Code)
	require.Equal(t, "value l 2\n", out.String())

	t.Setenv("SECRET", "of the agent")
	out.Reset()
	runner.Process{}.Run(t.Context(), task(t, `echo "[$SECRET]"`), &out)
	require.Equal(t, "[]\n", out.String(), "the agent's environment is not the job's")

	x = runner.Process{}.Run(t.Context(), task(t, `kill -9 $$`), &out)
	require.Nil(t, x.Code)
	require.Equal(t, syscall.SIGKILL.String(), x.Signal)

	missing := task(t, "")
	missing.Argv = []string{"no-such-program"}
	require.ErrorContains(t, runner.Process{}.Run(t.Context(), missing, &out).Err, "no-such-program")
}

// TestProcessGroupIsKilled: a task that ignores SIGTERM, with a child that does
// too, is gone after the grace time.
func TestProcessGroupIsKilled(t *testing.T) {
	tk := task(t, `trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $$ $! > pids; while :; do sleep 1; done`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan runner.Exit, 1)
	var out bytes.Buffer
	go func() { ended <- runner.Process{Grace: 100 * time.Millisecond}.Run(ctx, tk, &out) }()
	all := pids(t, tk.Dir, 2)
	cancel()
	select {
	case x := <-ended:
		require.Equal(t, syscall.SIGKILL.String(), x.Signal)
	case <-time.After(soon):
		require.Fail(t, "the task ignores SIGTERM and lives")
	}
	for _, pid := range all {
		gone(t, pid)
	}
}

// TestProcessMayEndByItself: SIGTERM comes first, and a task that heeds it ends in its own way.
func TestProcessMayEndByItself(t *testing.T) {
	tk := task(t, `trap 'echo bye; exit 5' TERM; echo $$ > pids; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan runner.Exit, 1)
	var out bytes.Buffer
	go func() { ended <- runner.Process{Grace: soon}.Run(ctx, tk, &out) }()
	pids(t, tk.Dir, 1)
	cancel()
	require.Equal(t, 5, *(<-ended).Code)
	require.Contains(t, out.String(), "bye\n") // the shell may also say that its sleep was terminated
}

// TestLeftoversAreKilled: what a task leaves in its group ends with it, and does not hold up its end.
func TestLeftoversAreKilled(t *testing.T) {
	tk := task(t, `sleep 300 & echo $! > pids; echo over`)
	var out bytes.Buffer
	began := time.Now()
	x := runner.Process{}.Run(t.Context(), tk, &out)
	require.Equal(t, 0, *x.Code)
	require.Less(t, time.Since(began), soon)
	require.Equal(t, "over\n", out.String())
	gone(t, pids(t, tk.Dir, 1)[0])
}

// TestJobDiesWithItsAgent kills the process that executes a task, as the kernel or an operator would.
func TestJobDiesWithItsAgent(t *testing.T) {
	dir := t.TempDir()
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), executeIn+"="+dir)
	require.NoError(t, agent.Start())
	pid := pids(t, dir, 1)[0]
	require.NoError(t, agent.Process.Kill())
	require.Error(t, agent.Wait())
	gone(t, pid)
}

// TestTimeLimitAndFlood runs both through an agent: the limit kills, and a flood leaves its last bytes only.
func TestTimeLimitAndFlood(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	p.agent("a", t.TempDir(), runner.Process{Grace: 100 * time.Millisecond}, "d1")
	slow := p.lease("a", func(j *runner.JobSpec) {
		j.Argv, j.Timeout = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, runner.Duration(200*time.Millisecond)
	})
	flood := p.lease("a", func(j *runner.JobSpec) {
		j.Argv = []string{"sh", "-c", `head -c 8000000 /dev/zero | tr '\0' x; printf 'the end \377'`}
	})
	cancelled := p.lease("a", func(j *runner.JobSpec) { j.Argv = []string{"sleep", "300"} })
	p.accepted(cancelled)
	ok, err := runner.CancelLease(t.Context(), p.store, cancelled)
	require.NoError(t, err)
	require.True(t, ok)
	outcome := func(lease string) string {
		p.becomes(lease, "done")
		return one[string](p, `SELECT l.outcome || ' ' || j.state FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.id = $1::text::uuid`, lease)
	}
	require.Equal(t, "timeout failed", outcome(slow))
	require.Equal(t, "cancelled cancelled", outcome(cancelled))
	require.Equal(t, "succeeded succeeded", outcome(flood))
	require.Equal(t, runner.MaxTail, one[int](p, `SELECT length(output_tail) FROM forge.leases WHERE id = $1::text::uuid`, flood))
	run, err := runner.Get(t.Context(), p.store, one[string](p, `SELECT j.run_id FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id WHERE l.id = $1::text::uuid`, flood))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(run.Jobs[0].Leases[0].OutputTail, "xthe end \uFFFD"))
	ok, err = runner.CancelLease(t.Context(), p.store, flood)
	require.NoError(t, err)
	require.False(t, ok, "a lease that has ended cannot be cancelled")
}
