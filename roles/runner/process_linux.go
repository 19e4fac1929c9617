// Process attributes on Linux: the task dies with its agent, even when the agent is killed.

package runner

import "syscall"

// processAttributes asks for a process group of its own and for SIGKILL when
// the thread that started the task ends; threads of the Go runtime end with
// their process unless a goroutine locked to one returns, and none here does.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
