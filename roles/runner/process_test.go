// Tasks as real processes: their steps, their files, their end, and what they leave behind.

package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func task(t *testing.T, script string) runner.Task {
	return runner.Task{
		Lease: "l", Run: "r", Job: "j", Attempt: 2, Steps: []runner.Step{{Argv: []string{"sh", "-c", script}}},
		Env: map[string]string{"OWN": "value"}, Dir: t.TempDir(),
	}
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

// ended reports whether a process is gone; a zombie that nobody reaps here is.
func ended(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return ended(pid) }, soon, time.Millisecond, "process %d outlives its task", pid)
}

func TestProcessExit(t *testing.T) {
	var out bytes.Buffer
	tk := task(t, `echo $OWN $FORGEYARD_LEASE $FORGEYARD_ATTEMPT; umask; [ "$TMPDIR" = "$(pwd)" ] || exit 9; exit 4`)
	x := processes().Run(t.Context(), tk, &out)
	require.NoError(t, x.Err)
	require.Equal(t, 4, *x.Code)
	require.Equal(t, "value l 2\n0022\n", out.String())

	t.Setenv("SECRET", "of the agent")
	out.Reset()
	processes().Run(t.Context(), task(t, `echo "[$SECRET]"; tr '\0' '\n' < /proc/$PPID/environ | grep SECRET`), &out)
	require.Equal(t, "[]\n", out.String(), "the agent's environment is not the job's, nor its supervisor's")

	x = processes().Run(t.Context(), task(t, `kill -9 $$`), &out)
	require.Nil(t, x.Code)
	require.Equal(t, syscall.SIGKILL.String(), x.Signal)

	missing := task(t, "")
	missing.Steps[0].Argv = []string{"no-such-program"}
	require.ErrorContains(t, processes().Run(t.Context(), missing, &out).Err, "no-such-program")
	require.ErrorContains(t, runner.Process{}.Run(t.Context(), missing, &out).Err, "no supervisor")
}

// TestNoInheritedFiles: a step has its three standard files and nothing else,
// also when the agent itself was given some.
func TestNoInheritedFiles(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	stray, err := syscall.Dup(int(w.Fd())) // without close-on-exec, as inherited
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(stray)) }()
	var out bytes.Buffer
	x := processes().Run(t.Context(), task(t, `ls /proc/$$/fd; readlink /proc/$$/fd/0`), &out)
	require.Equal(t, 0, *x.Code, out.String())
	require.Equal(t, "0\n1\n2\n/dev/null\n", out.String())
}

// TestSteps run in order in one place; the first that fails ends the task.
func TestSteps(t *testing.T) {
	var out bytes.Buffer
	tk := task(t, "")
	sh := func(name, script string) runner.Step {
		return runner.Step{Name: name, Argv: []string{"sh", "-c", script}}
	}
	tk.Steps = []runner.Step{sh("make", "sleep 300 & echo $! > pids; echo one"), sh("test", "kill -0 $(cat pids) && echo two; exit 7"), sh("never", "echo three")}
	x := processes().Run(t.Context(), tk, &out)
	require.Equal(t, 7, *x.Code)
	require.Equal(t, "test", x.Step)
	require.Equal(t, "== step make\none\n== step test\ntwo\n", out.String(), "what a step leaves running serves the next one")
	gone(t, pids(t, tk.Dir, 1)[0])
}

// started runs a task and returns how to end it.
func started(t *testing.T, p runner.Process, tk runner.Task) (end func(error), exits <-chan runner.Exit) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan runner.Exit, 1)
	var tasks sync.WaitGroup
	tasks.Go(func() { ended <- p.Run(ctx, tk, &bytes.Buffer{}) })
	t.Cleanup(func() { cancel(nil); tasks.Wait() })
	return func(why error) { cancel(why) }, ended
}

func exitSoon(t *testing.T, exits <-chan runner.Exit) runner.Exit {
	t.Helper()
	select {
	case x := <-exits:
		return x
	case <-time.After(soon):
		require.Fail(t, "the task lives")
		return runner.Exit{}
	}
}

// TestTreeIsKilled: whatever a task does to get away, nothing of it is left when Run returns.
func TestTreeIsKilled(t *testing.T) {
	for name, script := range map[string]string{
		"ignores SIGTERM": `trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $$ $! > pids; while :; do sleep 1; done`,
		"new session":     `setsid sh -c 'trap "" TERM; echo $$ > own; while :; do sleep 1; done' & until [ -s own ]; do sleep 0.01; done; echo $$ $(cat own) > pids; sleep 300`,
		"forks twice":     `(setsid sh -c '(setsid sleep 300 & echo $! > own)') ; until [ -s own ]; do sleep 0.01; done; echo $$ $(cat own) > pids; exec sleep 300`,
		"stopped":         `sleep 300 & kill -STOP $!; echo $$ $! > pids; exec sleep 300`,
	} {
		t.Run(name, func(t *testing.T) {
			tk := task(t, script)
			end, exits := started(t, processes(), tk)
			all := pids(t, tk.Dir, 2)
			end(nil)
			exitSoon(t, exits)
			for _, pid := range all {
				require.True(t, ended(pid), "process %d outlives its task", pid)
			}
		})
	}
}

// TestLeftoversAreKilled: what a task leaves behind ends with it, wherever it
// went, and does not hold up its end.
func TestLeftoversAreKilled(t *testing.T) {
	tk := task(t, `sleep 300 & echo $! > pids; (setsid sh -c '(setsid sleep 300 & echo $! >> pids)'); until [ $(wc -l < pids) = 2 ]; do sleep 0.01; done; echo over`)
	var out bytes.Buffer
	x := processes().Run(t.Context(), tk, &out)
	require.Equal(t, 0, *x.Code)
	require.Equal(t, "over\n", out.String())
	for _, pid := range pids(t, tk.Dir, 2) {
		require.True(t, ended(pid), "process %d outlives its task", pid)
	}
}

// TestProcessMayEndByItself: SIGTERM comes first, and a task that heeds it ends in its own way.
func TestProcessMayEndByItself(t *testing.T) {
	tk := task(t, `trap 'echo bye; exit 5' TERM; echo $$ > pids; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	exits := make(chan runner.Exit, 1)
	var out bytes.Buffer
	p := processes()
	p.Grace = soon
	go func() { exits <- p.Run(ctx, tk, &out) }()
	pids(t, tk.Dir, 1)
	cancel()
	require.Equal(t, 5, *(<-exits).Code)
	require.Contains(t, out.String(), "bye\n") // the shell may also say that its sleep was terminated
}

// uniqueLease is no other task's on this machine: what is left of a task whose
// supervisor was killed is found by its lease.
func uniqueLease(tk runner.Task) string { return "attacked-" + filepath.Base(filepath.Dir(tk.Dir)) }

// TestSupervisorIsAttacked: a job that kills or stops its own supervisor gains nothing.
func TestSupervisorIsAttacked(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		tk := task(t, `setsid sleep 300 & echo $! > pids; kill -9 $PPID; sleep 300`)
		tk.Lease = uniqueLease(tk)
		_, exits := started(t, processes(), tk)
		require.ErrorContains(t, exitSoon(t, exits).Err, "supervisor ended early")
		left := pids(t, tk.Dir, 1)[0]
		require.True(t, ended(left), "process %d outlives its task", left)
	})
	t.Run("stopped", func(t *testing.T) {
		tk := task(t, `setsid sleep 300 & kill -STOP $PPID; echo $$ $! > pids; exec sleep 300`)
		tk.Lease = uniqueLease(tk)
		end, exits := started(t, processes(), tk)
		all := pids(t, tk.Dir, 2)
		end(nil)
		exitSoon(t, exits)
		require.True(t, ended(all[0]) && ended(all[1]))
	})
}

// next is the script of a second step; the steps have names if there is one.
const next = "next"

// agentProcess plays an agent in a process of its own: it runs a task, of one step or
// two, whose lease lasts 5 s.
func agentProcess(t *testing.T, script string, second ...string) (*exec.Cmd, string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o600))
	for _, s := range second {
		require.NoError(t, os.WriteFile(filepath.Join(dir, next), []byte(s), 0o600))
	}
	agent := exec.Command(os.Args[0], execute, dir)
	require.NoError(t, agent.Start())
	return agent, dir
}

// playAgent is the other side of agentProcess.
func playAgent(dir string) {
	steps := []runner.Step{{Argv: []string{"sh", "script"}}}
	if _, err := os.Stat(filepath.Join(dir, next)); err == nil {
		steps = []runner.Step{{Name: "first", Argv: steps[0].Argv}, {Name: "second", Argv: []string{"sh", next}}}
	}
	end := processes().Run(context.Background(), runner.Task{
		Steps: steps, Dir: dir, Life: runner.NewLifeline(time.Now().Add(5 * time.Second)),
	}, &bytes.Buffer{})
	if !end.Late {
		fmt.Fprintf(os.Stderr, "the task did not end at its deadline: %+v\n", end)
		os.Exit(1)
	}
}

const escapes = `setsid sh -c '(setsid sleep 300 & echo $! > own)'; until [ -s own ]; do sleep 0.01; done; echo $$ $(cat own) > pids; exec sleep 300`

// TestTreeDiesWithItsAgent kills the process that executes a task, as the kernel or an operator would.
func TestTreeDiesWithItsAgent(t *testing.T) {
	agent, dir := agentProcess(t, escapes)
	all := pids(t, dir, 2)
	require.NoError(t, agent.Process.Kill())
	require.Error(t, agent.Wait())
	for _, pid := range all {
		gone(t, pid)
	}
}

// TestTreeDiesAtItsDeadline stops the agent: its task must not outlive the lease all the same.
func TestTreeDiesAtItsDeadline(t *testing.T) {
	agent, dir := agentProcess(t, escapes)
	all := pids(t, dir, 2)
	require.NoError(t, agent.Process.Signal(syscall.SIGSTOP))
	for _, pid := range all {
		gone(t, pid)
	}
	require.NoError(t, agent.Process.Signal(syscall.SIGCONT))
	require.NoError(t, agent.Wait(), "it sees that its task has ended")
}

// TestDeadlineHoldsBetweenSteps: nobody reads what the task writes while its agent is
// stopped, so the line that names the next step cannot be written; the lease ends all the same.
func TestDeadlineHoldsBetweenSteps(t *testing.T) {
	agent, dir := agentProcess(t, `
setsid sleep 300 > /dev/null 2>&1 & echo $! > quiet
yes & echo $(cat quiet) $! > pids
until [ -e go ]; do sleep 0.01; done`, `exec sleep 300`)
	all := pids(t, dir, 2)
	require.NoError(t, agent.Process.Signal(syscall.SIGSTOP))
	blocked(t, all[1])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	for _, pid := range all {
		gone(t, pid)
	}
	require.NoError(t, agent.Process.Signal(syscall.SIGCONT))
	require.NoError(t, agent.Wait(), "it sees that its task has ended")
}

// blocked waits until a process sleeps in a write to a full pipe.
func blocked(t *testing.T, pid int) {
	t.Helper()
	asleep := 0
	require.Eventually(t, func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if asleep++; err != nil || !strings.Contains(string(b), ") S ") {
			asleep = 0
		}
		return asleep > 20 // while somebody reads it sleeps for moments only
	}, soon, 5*time.Millisecond)
}
