// The command that runs beside a server: its exit status, and the signals passed on.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "withpg")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return bin
}

func TestRunsACommandWithAServer(t *testing.T) {
	bin := build(t)

	cmd := exec.Command(bin, "--", "sh", "-c", `echo "$FORGEYARD_TEST_PG"; test -S "${FORGEYARD_TEST_PG%:*}/.s.PGSQL.5432" || exit 9; exit 7`)
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.ExitCode(), "the command's status is passed on")
	dir, _, ok := strings.Cut(strings.TrimSpace(string(out)), ":")
	require.True(t, ok)
	require.NoDirExists(t, dir)

	require.ErrorAs(t, exec.Command(bin, "--", "/no/such/command").Run(), &exit)
	require.Equal(t, 127, exit.ExitCode())
	require.ErrorAs(t, exec.Command(bin).Run(), &exit)
	require.Equal(t, 2, exit.ExitCode())
}

func TestPassesSignalsOn(t *testing.T) {
	cmd := exec.Command(build(t), "--", "sh", "-c", `trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	buf := make([]byte, 16)
	n, err := out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(buf[:n]))
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	n, err = out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "caught\n", string(buf[:n]))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.Less(t, time.Since(start), 20*time.Second)
}
