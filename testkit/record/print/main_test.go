// The table is of the commits that count, or there is none.

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func TestShow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record.jsonl")
	require.NoError(t, record.Counts{{Suite: "s", Fault: "kill", Count: 3, Owed: 5}}.Append(file))
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
	require.Equal(t, "s  kill  3  of 5 owed: NOT REACHED\n", printed)
}
