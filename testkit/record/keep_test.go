// A run is added to the record when it has passed, at its very end.

package record

import (
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

// The commit that SinceEnv names counts itself.
func TestSinceCounts(t *testing.T) {
	all := Commits(t.Context())
	if len(all) == 0 {
		t.Skip("no repository")
	}
	t.Setenv(SinceEnv, all[0])
	require.Equal(t, all[:1], Commits(t.Context()))
	t.Setenv(SinceEnv, all[len(all)-1])
	require.Equal(t, all, Commits(t.Context()))
}
