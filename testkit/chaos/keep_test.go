//go:build chaos

// Each suite prints what it counted, with what earlier runs of these commits did, and keeps it.

package chaos

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recordTime keeps for how long a suite had real processes under faults. An hour is owed over all suites and runs.
func recordTime(t *testing.T, span time.Duration) {
	t.Helper()
	record(t, "real processes", Tally{{Fault: "seconds under faults", Count: int(span.Seconds()), Owed: 3600}})
}

// record keeps the counts of a suite in FORGEYARD_CHAOS_RECORD and prints them with those of earlier runs.
func record(t *testing.T, suite string, run Tally) {
	t.Helper()
	commits := Commits(t.Context())
	for i := range run {
		run[i].At, run[i].Suite = time.Now().UTC().Truncate(time.Second), suite
		if len(commits) > 0 {
			run[i].Commit = commits[0][:12]
		}
	}
	for line := range strings.Lines(run.String()) {
		t.Logf("this run: %s", strings.TrimSpace(line))
	}
	file := os.Getenv(RecordEnv)
	if file == "" {
		return
	}
	require.NoError(t, run.Append(file))
	all, err := ReadTally(file)
	require.NoError(t, err)
	var ours Tally
	for _, c := range all.Of(commits) {
		if c.Suite == suite {
			ours = append(ours, c)
		}
	}
	for line := range strings.Lines(ours.String()) {
		t.Logf("over runs: %s", strings.TrimSpace(line))
	}
}
