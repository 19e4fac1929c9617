// What one run adds to the record.

package record

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Keep adds the counts of a suite to the record that FileEnv names when the test
// ends, unless it has failed: what the record says happened without a violation. It
// prints them, and their sums over runs. At, Commit and Suite of the counts are set here.
func Keep(t testing.TB, suite string, run Counts) {
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
	file := os.Getenv(FileEnv)
	if file == "" {
		return
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("a run that failed is not added to the record")
			return
		}
		if err := run.Append(file); err != nil {
			t.Error(err)
			return
		}
		all, err := Read(file)
		if err != nil {
			t.Error(err)
			return
		}
		for line := range strings.Lines(all.Of(commits).of(suite).String()) {
			t.Logf("over runs: %s", strings.TrimSpace(line))
		}
	})
}

// Time is for how long a run had real processes under faults. An hour is owed over
// all suites and runs.
func Time(t testing.TB, span time.Duration) {
	t.Helper()
	Keep(t, "real processes", Counts{{Fault: "seconds under faults", Count: int(span.Seconds()), Owed: 3600}})
}

// of keeps the counts of one suite.
func (t Counts) of(suite string) (kept Counts) {
	for _, c := range t {
		if c.Suite == suite {
			kept = append(kept, c)
		}
	}
	return kept
}
