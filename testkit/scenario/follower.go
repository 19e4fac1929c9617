// `forgeyard run logs -f` as a process, and the numbered lines that it must have shown.

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// follower shows the log of one job, or of all jobs of a run.
type follower struct {
	out  string // file
	proc *fleet.Process
}

// follow starts `run logs -f`. It asks first the daemons that are named first.
func (w *World) follow(t testing.TB, nodes []*fleet.Node, run, job string) *follower {
	t.Helper()
	args := []string{"run", "logs", "-f", run}
	if job != "" {
		args = append(args, job)
	}
	for _, n := range nodes {
		args = append(args, "--endpoint", n.Endpoint())
	}
	f := &follower{out: filepath.Join(w.Dir(), "follow-"+run+"-"+job+".log")}
	// What the command remarks on standard error must not get between the lines.
	script := append([]string{"-c", `exec "$0" "$@" 2>>"$NOTES"`, w.exe}, args...)
	var err error
	f.proc, err = fleet.StartProcess("follower of "+job, "/bin/sh", script, []string{"NOTES=" + f.out + ".notes"}, w.Dir(), f.out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.proc.Kill()) })
	return f
}

func (f *follower) text(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(f.out)
	require.NoError(t, err)
	return string(b)
}

// shows waits until a line has come.
func (f *follower) shows(t testing.TB, line string) {
	t.Helper()
	eventually(t, line+" is shown", func() bool {
		require.True(t, f.proc.Running(), "the follower ended: %s", f.text(t))
		return strings.Contains(f.text(t), line+"\n")
	})
}

// end waits until the command ends by itself, successfully.
func (f *follower) end(t testing.TB, ctx context.Context) string {
	t.Helper()
	select {
	case <-f.proc.Done():
	case <-ctx.Done():
		require.NoError(t, ctx.Err(), "the follower does not end: %s", f.text(t))
	}
	notes, err := os.ReadFile(f.out + ".notes")
	require.NoError(t, err)
	require.Zero(t, f.proc.ExitCode(), "%s\n%s", notes, f.text(t))
	return f.text(t)
}

// spokenLines is how many numbered lines each job of the pipeline says.
const spokenLines = 400

var spoken = regexp.MustCompile(`(?m)(\w+) line (\d+)$`)

// checkLines requires of a text each numbered line of each job once, in order.
func checkLines(t testing.TB, text string, jobs ...string) {
	t.Helper()
	got := map[string][]string{}
	for _, m := range spoken.FindAllStringSubmatch(text, -1) {
		got[m[1]] = append(got[m[1]], m[2])
	}
	var want []string
	for i := range spokenLines {
		want = append(want, fmt.Sprint(i+1))
	}
	require.Len(t, got, len(jobs))
	for _, job := range jobs {
		require.Equal(t, want, got[job], "the log of %s", job)
	}
}
