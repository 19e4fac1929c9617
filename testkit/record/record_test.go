// The record adds up what earlier runs of these commits counted, and nothing else.

package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// killed is a fault that the suite agents owes 20 times.
const killed = "an agent's daemon killed"

func TestRecordAddsUpRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "record.jsonl")
	none, err := Read(file)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, Counts{
		{Commit: "aaaa", Suite: "agents", Fault: killed, Count: 13, Owed: 5}, {Commit: "aaaa", Suite: "agents", Fault: "cut", Count: 1},
	}.Append(file))
	require.NoError(t, Counts{{Commit: "bbbb", Suite: "agents", Fault: killed, Count: 14}}.Append(file))
	require.NoError(t, Counts{{Commit: "cccc", Suite: "agents", Fault: killed, Count: 100}, {Suite: "agents", Fault: killed, Count: 100}}.Append(file))
	all, err := Read(file)
	require.NoError(t, err)
	require.Len(t, all, 5)
	require.Equal(t, 227, all.Sum()[0].Count)
	ours := all.Of([]string{"bbbb1234", "aaaa5678"})
	require.Equal(t, Counts{{Suite: "agents", Fault: killed, Count: 27, Owed: 20}, {Suite: "agents", Fault: "cut", Count: 1}}, ours.Sum())
	require.Equal(t, "agents  an agent's daemon killed  27  of 20 owed\nagents  cut                       1   \n", ours.String())
	require.Equal(t, "agents  an agent's daemon killed  19  of 20 owed: NOT REACHED\n", Counts{{Suite: "agents", Fault: killed, Count: 19, Owed: 2}}.String())
	require.Empty(t, all.Of([]string{}))

	require.NoError(t, os.WriteFile(file, []byte("{\n"), 0o600))
	_, err = Read(file)
	require.ErrorContains(t, err, "line 1")
}
