// What an agent noted is read once and whole, also when it has put a part aside.

package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// lay writes a file of an agent's directory.
func lay(t *testing.T, dir, name string, entries ...runner.Entry) {
	t.Helper()
	var text strings.Builder
	lines := json.NewEncoder(&text)
	for _, e := range entries {
		require.NoError(t, lines.Encode(e))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600))
}

func TestShortenedJournal(t *testing.T) {
	dir := t.TempDir()
	got, err := Read(dir)
	require.NoError(t, err)
	require.Empty(t, got, "an agent that was never given anything")

	at := func(what runner.EntryKind, lease string, mono int64) runner.Entry {
		return runner.Entry{What: what, Lease: lease, Job: "job-" + lease, Attempt: 1, Mono: mono}
	}
	closed := []runner.Entry{at(runner.EntryStart, "closed", 1), at(runner.EntryFinish, "closed", 2), at(runner.EntryClose, "closed", 3)}
	runs, ended := at(runner.EntryStart, "runs", 4), at(runner.EntryFinish, "ended", 6)
	old := append(closed, runs, at(runner.EntryStart, "ended", 5), ended)
	twice := at(runner.EntryStart, "next", 7)
	lay(t, dir, runner.OldStartsFile, old...)
	lay(t, dir, runner.StartsFile, ended, runs, twice, twice, runs)
	got, err = Read(dir)
	require.NoError(t, err)
	require.Equal(t, append(old, twice, twice, runs), got, "copies are left out, and nothing else is")
}

func TestJournalThatEndsAmidALine(t *testing.T) {
	dir := t.TempDir()
	start := runner.Entry{What: runner.EntryStart, Lease: "one"}
	lay(t, dir, runner.StartsFile, start)
	path := filepath.Join(dir, runner.StartsFile)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"what":"st`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	got, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, []runner.Entry{start}, got)

	require.NoError(t, os.WriteFile(path, []byte("{\n"), 0o600))
	_, err = Read(dir)
	require.ErrorContains(t, err, dir)
}
