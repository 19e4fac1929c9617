// What is true of a task's pid while its group is killed.

package runner

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The group is killed while the task's pid is still its own: no other process
// can have become the group's leader.
func TestGroupIsKilledBeforeThePidIsFree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	cmd.SysProcAttr = processAttributes()
	require.NoError(t, cmd.Start())
	swept := false
	err := reap(cmd, func() {
		swept = true
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, 0), "the ended task still holds its pid")
		require.Nil(t, cmd.ProcessState)
	})
	require.True(t, swept)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.ErrorIs(t, syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH)
}
