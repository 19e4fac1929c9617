//go:build chaos

// How many sequences the state machine is compared over where time is given, kept over runs.

package fsm

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sequences is how many TestReference draws.
const sequences = 10_000

// keep adds the count to the record of chaos runs. testkit/chaos reads it, and cannot be imported from here: it imports this package.
func keep(t *testing.T, resumed int) {
	t.Helper()
	file := os.Getenv("FORGEYARD_CHAOS_RECORD")
	if file == "" {
		return
	}
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short=12", "HEAD").Output()
	require.NoError(t, err)
	line, err := json.Marshal(map[string]any{
		"at": time.Now().UTC().Truncate(time.Second), "commit": strings.TrimSpace(string(commit)),
		"suite": "models", "fault": "a sequence with a restore in it", "count": resumed, "owed": sequences,
	})
	require.NoError(t, err)
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = out.Write(append(line, '\n'))
	require.NoError(t, errors.Join(err, out.Close()))
}
