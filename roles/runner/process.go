// The process executor: one process group per task, killed as a whole.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Process runs tasks as processes of this machine.
type Process struct {
	// Grace is how long a task has between SIGTERM and SIGKILL; 0 means 5 s. A
	// task whose lease has ended, or is about to, has none: the margin before the
	// deadline is for the kill, not for the task.
	Grace time.Duration
}

// drainBound is how long the output of an ended task is still read when a
// process that left the group keeps the pipe open.
const drainBound = time.Second

// Run executes t.Argv in its own process group and waits. When ctx ends the
// group gets SIGTERM and, after its grace, SIGKILL. Whatever the program left
// behind in its group is killed once it has ended.
func (p Process) Run(ctx context.Context, t Task, output io.Writer) Exit {
	r, w, err := os.Pipe()
	if err != nil {
		return Exit{Err: fmt.Errorf("output pipe: %w", err)}
	}
	defer r.Close()
	cmd := exec.Command(t.Steps[0].Argv[0], t.Steps[0].Argv[1:]...)
	cmd.Dir, cmd.Env = t.Dir, environment(t)
	cmd.Stdout, cmd.Stderr = w, w // a file, so that Wait does not wait for grandchildren
	cmd.SysProcAttr = processAttributes()
	err = cmd.Start()
	_ = w.Close() // the child has its own copy
	if err != nil {
		return Exit{Err: fmt.Errorf("start: %w", err)}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(output, r) // ends at EOF or when r is closed below
	}()
	ended := make(chan struct{})
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		p.killOn(ctx, cmd.Process.Pid, ended)
	}()
	err = reap(cmd, func() {
		close(ended)
		<-killed
		killGroup(cmd.Process.Pid, syscall.SIGKILL)
	})
	late := time.AfterFunc(drainBound, func() { _ = r.Close() })
	<-drained
	late.Stop()
	return exitOf(cmd, err)
}

func (p Process) killOn(ctx context.Context, pid int, ended <-chan struct{}) {
	grace := p.Grace
	if grace <= 0 {
		grace = 5 * time.Second
	}
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	if why := context.Cause(ctx); errors.Is(why, errDeadline) || errors.Is(why, errDropped) {
		killGroup(pid, syscall.SIGKILL) // the next attempt may start when the lease ends
		return
	}
	killGroup(pid, syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		killGroup(pid, syscall.SIGKILL)
	}
}

// killGroup signals every process of the group; a group that is gone is no error.
func killGroup(pgid int, sig syscall.Signal) { _ = syscall.Kill(-pgid, sig) }

func exitOf(cmd *exec.Cmd, err error) Exit {
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		return Exit{Err: fmt.Errorf("wait: %w", err)}
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Exit{Signal: ws.Signal().String()}
	}
	code := cmd.ProcessState.ExitCode()
	return Exit{Code: &code}
}

// environment is a small base, then the job's own variables, then what
// identifies the attempt. Nothing else of the agent's environment is passed on.
func environment(t Task) []string {
	env := []string{"HOME=" + t.Dir, "TMPDIR=" + t.Dir, "LANG=C.UTF-8"}
	if path, ok := os.LookupEnv("PATH"); ok {
		env = append(env, "PATH="+path)
	}
	names := make([]string, 0, len(t.Env))
	for k := range t.Env {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		env = append(env, k+"="+t.Env[k])
	}
	return append(env,
		"FORGEYARD_RUN="+t.Run, "FORGEYARD_JOB="+t.Job, "FORGEYARD_LEASE="+t.Lease,
		"FORGEYARD_ATTEMPT="+strconv.Itoa(t.Attempt))
}
