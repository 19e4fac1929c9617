// The record adds up what earlier runs of these commits counted, and nothing else.

package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecordAddsUpRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "record.jsonl")
	none, err := Read(file)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, Counts{
		{Commit: "aaaa", Suite: "s", Fault: "kill", Count: 3, Owed: 5}, {Commit: "aaaa", Suite: "s", Fault: "cut", Count: 1},
	}.Append(file))
	require.NoError(t, Counts{{Commit: "bbbb", Suite: "s", Fault: "kill", Count: 4, Owed: 6}}.Append(file))
	require.NoError(t, Counts{{Commit: "cccc", Suite: "s", Fault: "kill", Count: 100, Owed: 6}, {Suite: "s", Fault: "kill", Count: 100, Owed: 6}}.Append(file))
	all, err := Read(file)
	require.NoError(t, err)
	require.Len(t, all, 5)
	require.Equal(t, 207, all.Sum()[0].Count)
	ours := all.Of([]string{"bbbb1234", "aaaa5678"})
	require.Equal(t, Counts{{Suite: "s", Fault: "kill", Count: 7, Owed: 6}, {Suite: "s", Fault: "cut", Count: 1}}, ours.Sum())
	require.Equal(t, "s  kill  7  of 6 owed\ns  cut   1  \n", ours.String())
	require.Equal(t, "s  kill  1  of 2 owed: NOT REACHED\n", Counts{{Suite: "s", Fault: "kill", Count: 1, Owed: 2}}.String())
	require.Empty(t, all.Of([]string{}))

	require.NoError(t, os.WriteFile(file, []byte("{\n"), 0o600))
	_, err = Read(file)
	require.ErrorContains(t, err, "line 1")
}
