// A run is added to the record when it has passed, at its very end.

package record

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// run is a test whose end and result are told.
type run struct {
	testing.TB
	failed bool
	ends   []func()
}

func (r *run) Failed() bool     { return r.failed }
func (r *run) Cleanup(f func()) { r.ends = append(r.ends, f) }

func TestRunThatFailedIsNotAdded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.jsonl")
	t.Setenv(FileEnv, file)
	for _, failed := range []bool{false, true} {
		r := &run{TB: t}
		Keep(r, "s", Counts{{Fault: "kill", Count: 3}})
		r.failed = failed // after it was counted
		for _, end := range r.ends {
			end()
		}
	}
	all, err := Read(file)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, 3, all.Sum()[0].Count)
}

// The commit that SinceEnv names counts itself, also when it is the first of all.
func TestSinceCounts(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		args = append([]string{"-c", "user.name=somebody", "-c", "user.email=somebody@localhost"}, args...)
		require.NoError(t, exec.CommandContext(t.Context(), "git", args...).Run())
	}
	git("init", "-q")
	for _, message := range []string{"first", "second", "third"} {
		git("commit", "-q", "--allow-empty", "-m", message)
	}
	all := Commits(t.Context())
	require.Len(t, all, 3)
	for i := range all {
		t.Setenv(SinceEnv, all[i])
		require.Equal(t, all[:i+1], Commits(t.Context()))
	}
}
