// `forgeyard dev` as a newcomer meets it: started, every suggested line tried, ended; and killed.

package clitest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// stopPromise is how long Ctrl-C may take.
const stopPromise = 20 * time.Second

// dev is a running `forgeyard dev`.
type dev struct {
	*fleet.Process
	t         *testing.T
	exe, temp string
	out       string // file of its output
	dir       string // the fleet's
}

// startDev starts a fleet on free ports and waits for its banner.
func startDev(t *testing.T, exe, temp, out string) *dev {
	t.Helper()
	p, err := fleet.StartProcess("dev", exe, []string{"dev", "--port", "0"}, []string{"TMPDIR=" + temp}, temp, out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	d := &dev{Process: p, t: t, exe: exe, temp: temp, out: out}
	require.Eventually(t, func() bool { return strings.Contains(d.output(), "Stop with Ctrl-C.") || !p.Running() },
		2*time.Minute, 50*time.Millisecond, "no banner")
	require.True(t, p.Running(), d.output())
	b, err := os.ReadFile(d.pointer())
	require.NoError(t, err)
	d.dir = string(b)
	return d
}

func (d *dev) output() string {
	b, err := os.ReadFile(d.out)
	require.NoError(d.t, err)
	return string(b)
}

// pointer is the file by which sub-commands find the fleet.
func (d *dev) pointer() string {
	found, err := filepath.Glob(filepath.Join(d.temp, "forgeyard-dev.*"))
	require.NoError(d.t, err)
	require.Len(d.t, found, 1)
	return found[0]
}

// suggested are the banner's lines, without what they are for.
func (d *dev) suggested() (lines []string) {
	_, rest, ok := strings.Cut(d.output(), "Try next:\n")
	require.True(d.t, ok)
	rest, _, ok = strings.Cut(rest, "Stop with Ctrl-C.")
	require.True(d.t, ok)
	for line := range strings.Lines(rest) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
		lines = append(lines, command)
	}
	return lines
}

// shell is a second terminal in which the banner's eval line was run.
func (d *dev) shell(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", `eval "$(`+d.exe+` dev env)"; exec `+line)
	cmd.Dir, cmd.Env = "/", environment("TMPDIR="+d.temp)
	return cmd
}

// try runs one suggested line to its end.
func (d *dev) try(line string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), commandBound)
	defer cancel()
	cmd := d.shell(ctx, line)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(d.t, err, "%s\n%s%s", line, out, errs.String())
	require.NotEmpty(d.t, out, line)
	require.NotContains(d.t, string(out), "\x1b", "a pipe gets no colour")
}

// watch runs a line that follows until Ctrl-C.
func (d *dev) watch(line string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), commandBound)
	defer cancel()
	cmd := d.shell(ctx, line)
	pipe, err := cmd.StdoutPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, cmd.Start())
	first := make([]byte, 1<<10)
	n, err := pipe.Read(first)
	require.NoError(d.t, err)
	require.Contains(d.t, string(first[:n]), "ClusterStatus")
	require.NoError(d.t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(d.t, 130, cmd.ProcessState.ExitCode(), "interrupted")
}

// gone requires that no process of the fleet is left.
func (d *dev) gone() {
	d.t.Helper()
	eventually(d.t, "no process of the fleet is left", func() bool { return len(processes(d.t, d.dir)) == 0 })
}

// TestDev kills a fleet's parent first, so that the fleet under test starts over
// what a killed one has left behind.
func TestDev(t *testing.T) {
	exe, temp, logs := product(t), scratch(t), scratch(t)
	victim := startDev(t, exe, temp, filepath.Join(logs, "first"))
	require.GreaterOrEqual(t, len(processes(t, victim.dir)), 6, "three daemons, two agents, PostgreSQL")
	require.NoError(t, victim.Kill())
	victim.gone()
	o := command(t, exe, environment("TMPDIR="+temp), "dev", "status")
	require.Equal(t, 1, o.code, "no fleet answers: %s", o.stdout)

	d := startDev(t, exe, temp, filepath.Join(logs, "second"))
	require.Contains(t, d.output(), "removed "+victim.dir)
	require.NoDirExists(t, victim.dir)
	lines := d.suggested()
	require.GreaterOrEqual(t, len(lines), 5, d.output())
	for _, line := range lines {
		began := time.Now()
		if strings.Contains(line, "--watch") {
			d.watch(line)
		} else {
			d.try(line)
		}
		t.Logf("%-45s %s", line, time.Since(began).Round(10*time.Millisecond))
	}

	began := time.Now()
	require.NoError(t, d.Signal(syscall.SIGINT))
	require.Zero(t, d.ExitCode(), d.output())
	t.Logf("Ctrl-C: %s", time.Since(began).Round(10*time.Millisecond))
	require.Less(t, time.Since(began), slack*stopPromise)
	require.Empty(t, processes(t, d.dir))
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Contains(t, d.output(), "stopped; removed "+d.dir)
}

// TestDevInterruptedWhileStarting leaves as little behind as one that was ready.
func TestDevInterruptedWhileStarting(t *testing.T) {
	exe, temp, logs := product(t), scratch(t), scratch(t)
	out := filepath.Join(logs, "out")
	p, err := fleet.StartProcess("dev", exe, []string{"dev", "--port", "0"}, []string{"TMPDIR=" + temp}, temp, out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	eventually(t, "PostgreSQL is up", func() bool { return len(grep(t, out, "postgres   ready")) > 0 })
	require.NoError(t, p.Signal(syscall.SIGINT))
	require.Equal(t, 130, p.ExitCode())
	eventually(t, "no process is left", func() bool { return len(processes(t, temp)) == 0 })
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// slack multiplies a stated bound that a test asserts.
const slack = 3
