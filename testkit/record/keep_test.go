// A run is added to the record when all of it has passed, at its very end.

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// run is a test whose end and result are told.
type run struct {
	testing.TB
	failed bool
	ends   []func()
}

func (r *run) Failed() bool     { return r.failed }
func (r *run) Cleanup(f func()) { r.ends = append(r.ends, f) }

func (r *run) Fatal(args ...any) {
	r.failed = true
	r.TB.Log(args...)
	runtime.Goexit()
}

func (r *run) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// do runs what may end the test at once, and then ends it.
func (r *run) do(test func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test()
	}()
	<-ended
	r.end()
}

// end ends the test as a real one ends: the last cleanup first.
func (r *run) end() {
	for i := range r.ends {
		r.ends[len(r.ends)-1-i]()
	}
}

// recorded is what the file that FileEnv names has in the end, empty in the beginning.
func recorded(t *testing.T) func() Counts {
	t.Helper()
	file := filepath.Join(t.TempDir(), "record.jsonl")
	t.Setenv(FileEnv, file)
	return func() Counts {
		t.Helper()
		all, err := Read(file)
		require.NoError(t, err)
		return all
	}
}

func TestRunThatFailedIsNotAdded(t *testing.T) {
	all := recorded(t)
	for _, failed := range []bool{false, true} {
		r := &run{TB: t}
		Begin(r, "s").Add("kill", 3)
		r.failed = failed // after it was counted
		r.end()
	}
	require.Len(t, all(), 1)
	require.Equal(t, 3, all()[0].Count)
}

// A fleet that does not end well, found by a cleanup, fails the run like anything else.
func TestCleanupsAreJudged(t *testing.T) {
	all := recorded(t)
	r := &run{TB: t}
	s := Begin(r, "s")
	r.Cleanup(func() { r.failed = true })
	s.Add("kill", 1)
	r.end()
	require.Empty(t, all())
}

// suiteEnv has TestHelperSuite run: a suite of subtests side by side, of which one fails.
const suiteEnv = "FORGEYARD_RECORD_SUITE"

func TestHelperSuite(t *testing.T) {
	if os.Getenv(suiteEnv) == "" {
		t.Skip("is a suite only where TestFailedSubtestFailsItsSuite runs it")
	}
	s := Begin(t, "s")
	for _, name := range []string{"passes first", "fails", "passes last"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Add("kill", 1)
			require.NotEqual(t, "fails", name)
		})
	}
}

// What subtests count is kept when all of them have ended, and nothing of it when one
// has failed. That takes a process of its own, which fails.
func TestFailedSubtestFailsItsSuite(t *testing.T) {
	all := recorded(t)
	suite := func(tests string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", tests)
		cmd.Env = append(os.Environ(), suiteEnv+"=1")
		return cmd.Run()
	}
	require.Error(t, suite("^TestHelperSuite$"))
	require.Empty(t, all())
	require.NoError(t, suite("^TestHelperSuite$/^passes"))
	require.Equal(t, Counts{{Suite: "s", Fault: "kill", Count: 2}}, all().Sum())
}

// A subtest knows nothing of the others, so it is no suite.
func TestSubtestIsNoSuite(t *testing.T) {
	all := recorded(t)
	t.Run("sub", func(t *testing.T) {
		r := &run{TB: t}
		r.do(func() { Begin(r, "s").Add("kill", 1) })
		require.True(t, r.failed)
	})
	require.Empty(t, all())
}

// Times that overlap count once: it is the hour that is owed, not the work done in it.
func TestTimeOfScenarios(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct {
		spans [][2]int
		want  int
	}{
		"none":            {nil, 0},
		"one after other": {[][2]int{{0, 10}, {20, 25}}, 15},
		"side by side":    {[][2]int{{0, 10}, {0, 10}}, 10},
		"overlapping":     {[][2]int{{5, 15}, {0, 10}}, 15},
		"one in another":  {[][2]int{{0, 10}, {2, 3}, {9, 12}}, 12},
		"touching":        {[][2]int{{0, 10}, {10, 12}}, 12},
	} {
		all := recorded(t)
		r := &run{TB: t}
		s := Begin(r, "s")
		for _, b := range c.spans {
			s.Broken(at(b[0]), at(b[1]))
		}
		r.end()
		sums := all().Sum()
		if c.spans == nil {
			require.Empty(t, sums, name)
			continue
		}
		require.Equal(t, Counts{{Suite: realProcesses, Fault: "seconds of scenarios that break them", Count: c.want, Owed: 3600}}, sums, name)
	}
}
