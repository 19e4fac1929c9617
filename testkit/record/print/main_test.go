// The table is of the commits that count, or there is none.

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func TestShow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.jsonl")
	require.NoError(t, record.Counts{{Suite: "processes", Fault: "kill the owner", Count: 3}, {Suite: "s", Fault: "kill", Count: 4}}.Append(file))
	show := func() (string, error) {
		var out strings.Builder
		err := show(t.Context(), &out, file)
		return out.String(), err
	}
	t.Setenv(record.SinceEnv, "nosuch") // of this repository
	printed, err := show()
	require.ErrorContains(t, err, "nosuch")
	require.Empty(t, printed)
	t.Chdir(t.TempDir())
	printed, err = show()
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(printed) {
		cells := regexp.MustCompile(" {2,}").Split(strings.TrimSpace(line), -1)
		rows[cells[0]+", "+cells[1]] = strings.Join(cells[2:], " ")
	}
	require.Equal(t, "3 of 20 owed: NOT REACHED", rows["processes, kill the owner"])
	require.Equal(t, "4", rows["s, kill"])
	// A suite that never ran, and what a machine may not do, is owed all the same.
	require.Equal(t, "0 of 1 owed: NOT REACHED", rows["soak, an hour flat"])
	require.Equal(t, "0 of 5 owed: NOT REACHED", rows["processes, the leader's disk full"])
	require.Len(t, rows, len(record.Owed())+1)
}
