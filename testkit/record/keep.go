// What one run adds to the record.

package record

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// realProcesses is the suite under which all suites keep the time of their scenarios
// that break real processes: an hour is owed over all of them.
const (
	realProcesses  = "real processes"
	secondsOfThese = "seconds of scenarios that break them"
)

// Suite is what one run of a suite counts. Subtests may add to it side by side.
type Suite struct {
	name string

	mu     sync.Mutex
	counts Counts
	broken []span
}

type span struct{ from, to time.Time }

// Begin begins a run of a suite: what is added to it until the end of t, its subtests
// and cleanups goes to the record that FileEnv names, unless one of them has failed.
// What the record says happened without a violation. Begin comes first in the test
// of the whole suite: what a later cleanup finds is then found before anything is kept.
// It prints what was added, and the sums over runs.
func Begin(t testing.TB, name string) *Suite {
	t.Helper()
	if strings.Contains(t.Name(), "/") {
		t.Fatalf("record: %s knows nothing of the subtests beside it: begin %s in the test of all of them", t.Name(), name)
	}
	s := &Suite{name: name}
	file := os.Getenv(FileEnv)
	var commit string
	var commits []string
	if file != "" {
		if !filepath.IsAbs(file) {
			t.Fatalf("record: %s=%s is not absolute: each suite, in its own folder, would keep a file of its own", FileEnv, file)
		}
		var err error
		if commit, err = head(t.Context()); err != nil {
			t.Fatal(err)
		}
		if commits, err = Commits(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		run := s.all(commit)
		printed(t, "this run", run)
		switch {
		case file == "" || len(run) == 0:
			return
		case t.Failed():
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
		printed(t, "over runs", append(Owed(), all.Of(commits)...).of(run))
	})
	return s
}

// Add adds how often a fault was made, and what follows from it judged. What is owed
// of it over runs is in the list of Owed; of what is not there, nothing is.
func (s *Suite) Add(fault string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = append(s.counts, Count{Suite: s.name, Fault: fault, Count: count})
}

// Broken adds the time of a scenario that breaks real processes: all of it, what it
// waits for before its fault and the recovery that it awaits included. Times that
// overlap, as those of two fleets side by side, count once.
func (s *Suite) Broken(from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, span{from, to})
}

// all are the counts, as the record has them.
func (s *Suite) all(commit string) Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := slices.Clone(s.counts)
	if len(s.broken) > 0 {
		run = append(run, Count{Suite: realProcesses, Fault: secondsOfThese, Count: int(union(s.broken).Seconds())})
	}
	for i := range run {
		run[i].At, run[i].Commit = time.Now().UTC().Truncate(time.Second), commit
		run[i].Owed = Owes(run[i].Suite, run[i].Fault)
	}
	return run
}

// union is how long at least one of the spans lasted.
func union(spans []span) (total time.Duration) {
	var end time.Time
	for _, s := range slices.SortedFunc(slices.Values(spans), func(a, b span) int { return a.from.Compare(b.from) }) {
		if s.from.Before(end) {
			s.from = end
		}
		if s.to.After(s.from) {
			total += s.to.Sub(s.from)
			end = s.to
		}
	}
	return total
}

func printed(t testing.TB, what string, counts Counts) {
	for line := range strings.Lines(counts.String()) {
		t.Logf("%s: %s", what, strings.TrimSpace(line))
	}
}

// of keeps the counts of the suites that a run added to.
func (t Counts) of(run Counts) (kept Counts) {
	for _, c := range t {
		if slices.ContainsFunc(run, func(r Count) bool { return r.Suite == c.Suite }) {
			kept = append(kept, c)
		}
	}
	return kept
}
