// The agent's own log stays small, whatever it has run.

package runner

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJournalIsBounded: closed leases are put aside, those that can still be
// offered and the high-water mark are kept, also across a restart.
func TestJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, 30)
	require.NoError(t, err)
	_, _, err = j.admit(1, mark{Generation: 1, Epoch: 9})
	require.NoError(t, err)
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "runs"}, true))
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "ended"}, true))
	require.NoError(t, j.write(Entry{What: EntryFinish, Lease: "ended", Outcome: Succeeded, LogBytes: 7}, true))
	for i := range 200 {
		for _, what := range []EntryKind{EntryDispatch, EntryStart, EntryFinish, EntryClose} {
			require.NoError(t, j.write(Entry{What: what, Lease: fmt.Sprint(i)}, false))
		}
		require.LessOrEqual(t, lines(t, filepath.Join(dir, StartsFile)), 30)
		require.LessOrEqual(t, len(j.started), 30)
	}
	require.LessOrEqual(t, lines(t, filepath.Join(dir, OldStartsFile)), 31)
	check := func() {
		require.True(t, j.hasStarted("runs") && j.hasStarted("ended"))
		require.Equal(t, Succeeded, j.open["ended"].Outcome)
		require.EqualValues(t, 7, j.open["ended"].LogBytes)
		ok, _, err := j.admit(1, mark{Generation: 1, Epoch: 8})
		require.NoError(t, err)
		require.False(t, ok)
	}
	check()
	require.NoError(t, j.close())
	j, err = openJournal(dir, 1) // shortened when it is opened
	require.NoError(t, err)
	require.Equal(t, 2, lines(t, filepath.Join(dir, StartsFile)))
	check()
	require.NoError(t, j.write(Entry{What: EntryStart, Lease: "next"}, true), "it is the new file that is written to")
	require.Equal(t, 3, lines(t, filepath.Join(dir, StartsFile)))
	require.NoError(t, j.close())
}

func lines(t *testing.T, path string) int {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		n++
	}
	return n
}

// TestJournalWithoutEnd: what has no end is no entry, and is refused before it is memory.
func TestJournalWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, StartsFile)))
	_, err := openJournal(dir, 0)
	require.ErrorContains(t, err, "no entry is longer")
}
