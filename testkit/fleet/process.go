// One child process of a fleet: started in a group of its own, killed with its parent, signalled by pid only.

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running child. Its output goes to a log file.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartProcess starts binary with args; output is appended to logFile. The
// child dies when this process dies, whatever kills it.
func StartProcess(name, binary string, args, env []string, dir, logFile string) (*Process, error) {
	return startProcess(name, binary, args, env, dir, logFile, nil, nil)
}

// Starter starts a prepared command in place of its Start; wait is then called in place of its
// Wait, which it must call. It may change the command first, and must not change who its parent is.
type Starter func(*exec.Cmd) (wait func() error, err error)

func plainly(cmd *exec.Cmd) (func() error, error) { return cmd.Wait, cmd.Start() }

// startProcess starts it in a network of its own and by another one, where they are given.
func startProcess(name, binary string, args, env []string, dir, logFile string, space *namespace, by Starter) (*Process, error) {
	if by == nil {
		by = plainly
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig fires when the thread that forked ends, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer out.Close()
		var err error
		if space != nil {
			err = space.enter()
		}
		wait := cmd.Wait
		if err == nil {
			wait, err = by(cmd)
		}
		if err != nil {
			started <- fmt.Errorf("start %s: %w", name, err)
			close(p.done)
			return
		}
		started <- nil
		p.err = wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the child still runs (a paused child runs).
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode waits for the end and returns the exit status; -1 when a signal ended it.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to the child alone.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s: %w", p.name, os.ErrProcessDone)
	}
	return p.cmd.Process.Signal(sig)
}

// Kill ends the child at once (SIGKILL) and waits for it.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	<-p.done
	return err
}

// Stop asks the child to end (SIGTERM, after waking it if it is paused) and kills it when ctx ends first.
func (p *Process) Stop(ctx context.Context) error {
	if !p.Running() {
		return nil
	}
	_ = p.Signal(syscall.SIGCONT)
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not stop in time and was killed", p.name), p.Kill())
	}
}

// WaitPaused returns once the kernel reports the child stopped (after SIGSTOP).
func (p *Process) WaitPaused(ctx context.Context) error {
	for {
		state, err := procState(p.PID())
		if err != nil {
			return err
		}
		if state == 'T' {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not paused: %w", p.name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// procState reads the one-letter state from /proc/PID/stat.
func procState(pid int) (byte, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == ')' && i+2 < len(b) {
			return b[i+2], nil
		}
	}
	return 0, fmt.Errorf("unexpected /proc/%d/stat", pid)
}
