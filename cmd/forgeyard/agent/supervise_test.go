// What an agent does with each signal.

package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const hangingEnv = "FORGEYARD_TEST_HANGING_AGENT"

// hang is a process that does not end by itself, told once and told to hurry.
func hang() {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as of the whole product
	context.AfterFunc(told, func() {
		stop()
		fmt.Println("told")
	})
	defer onSecondSignal(func() { fmt.Println("hurried") })()
	fmt.Println("runs")
	select {}
}

// The third signal is taken by nobody, so it ends a process that does not end by itself.
func TestThirdSignalIsNotTaken(t *testing.T) {
	if os.Getenv(hangingEnv) != "" {
		hang()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), hangingEnv+"=1")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	says := bufio.NewScanner(pipe)
	for _, line := range []string{"runs", "told", "hurried"} {
		require.True(t, says.Scan())
		require.Equal(t, line, says.Text())
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	}
	_ = cmd.Wait()
	require.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
