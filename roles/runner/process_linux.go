// Processes on Linux: the task dies with its agent, even when the agent is killed, and keeps its pid until its group is dead.

package runner

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttributes asks for a process group of its own and for SIGKILL when
// the thread that started the task ends; threads of the Go runtime end with
// their process unless a goroutine locked to one returns, and none here does.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the task's end, calls sweep, and only then gives the task's pid
// back: until then its group cannot be another process's.
func reap(cmd *exec.Cmd, sweep func()) error {
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	if err != nil { // not to be waited for like this: a task that runs must not be swept away
		err = cmd.Wait()
		sweep()
		return err
	}
	sweep()
	return cmd.Wait()
}
