// Process attributes where there is no parent-death signal: a killed agent's task runs on until its time limit.

//go:build !linux

package runner

import (
	"os/exec"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the task's end and then calls sweep. In between another process
// may get its pid, though hardly as the leader of a group.
func reap(cmd *exec.Cmd, sweep func()) error {
	err := cmd.Wait()
	sweep()
	return err
}
