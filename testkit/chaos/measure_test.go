//go:build chaos

// What the processes of a fleet hold, read from /proc, /metrics and PostgreSQL.

package chaos

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// figure is one thing that a process holds.
type figure struct {
	name string
	flat Flat
}

// The figures, and how much each may grow over the measured time.
func memory() figure      { return figure{"resident MiB", Flat{Share: 0.10, Least: 8}} }
func goroutines() figure  { return figure{"goroutines", Flat{Least: 10}} } // of all daemons
func threads() figure     { return figure{"threads", Flat{Share: 0.10, Least: 3}} }
func descriptors() figure { return figure{"file descriptors", Flat{Share: 0.05, Least: 6}} }
func connections() figure { return figure{"database connections", Flat{Least: 3}} } // of all daemons

// series is one figure of one process, or of all daemons together.
type series struct {
	process string
	figure  figure
	samples []Sample
}

// measures are all series of a fleet.
type measures struct {
	w     *scenario.World
	start time.Time
	pids  map[string]int
	all   []*series
}

func newMeasures(t *testing.T, w *scenario.World) *measures {
	t.Helper()
	m := &measures{w: w, start: time.Now(), pids: map[string]int{}}
	for _, n := range w.Nodes() {
		m.pids[n.Name] = n.PID()
	}
	for _, a := range w.Agents() {
		m.pids[a.Name] = a.PID()
	}
	return m
}

// take samples every figure. No fault may be under way.
func (m *measures) take(t *testing.T) {
	t.Helper()
	// Whoever leads or owns a role holds more of these, and both move: only the sum says something.
	var running, sessions float64
	for _, n := range m.w.Nodes() {
		require.Equal(t, m.pids[n.Name], n.PID(), "%s was replaced; see %s", n.Name, n.LogFile())
		m.process(t, n.Name, n.PID())
		running += metric(t, n.Endpoint()+"/metrics", "go_goroutines")
		var open int
		require.NoError(t, m.w.Query(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE $1`, []any{"forgeyard " + n.Name + " %"}, &open))
		require.Positive(t, open, "no session of %s is found", n.Name)
		sessions += float64(open)
	}
	m.add("daemons", goroutines(), running)
	m.add("daemons", connections(), sessions)
	for _, a := range m.w.Agents() {
		require.Equal(t, m.pids[a.Name], a.PID())
		m.process(t, a.Name, a.PID())
		m.add(a.Name, threads(), status(t, a.PID(), "Threads"))
	}
}

func (m *measures) process(t *testing.T, name string, pid int) {
	t.Helper()
	m.add(name, memory(), status(t, pid, "VmRSS")/1024)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	m.add(name, descriptors(), float64(len(open)))
}

func (m *measures) add(process string, f figure, value float64) {
	s := Sample{time.Since(m.start), value}
	for _, have := range m.all {
		if have.process == process && have.figure.name == f.name {
			have.samples = append(have.samples, s)
			return
		}
	}
	m.all = append(m.all, &series{process, f, []Sample{s}})
}

// flat prints every series and requires each to be flat.
func (m *measures) flat(t *testing.T) {
	t.Helper()
	var steep []string
	t.Logf("%-9s %-21s %9s %9s %9s %9s %9s", "process", "figure", "first", "median", "last", "growth", "allowed")
	for _, s := range m.all {
		trend, err := s.figure.flat.Of(s.samples)
		t.Logf("%-9s %-21s %9.1f %9.1f %9.1f %9.1f %9.1f", s.process, s.figure.name, trend.First, trend.Median, trend.Last, trend.Growth, trend.Allowed)
		if err != nil {
			steep = append(steep, fmt.Sprintf("%s, %s: %v", s.process, s.figure.name, err))
		}
	}
	require.Empty(t, steep)
}

// status reads a number of /proc/PID/status.
func status(t *testing.T, pid int, field string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			v, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			require.NoError(t, err)
			return v
		}
	}
	require.Failf(t, "no such field", "%s of process %d", field, pid)
	return 0
}

// metric reads a figure without labels.
func metric(t *testing.T, url, name string) float64 {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), name+" "); found {
			v, err := strconv.ParseFloat(rest, 64)
			require.NoError(t, err)
			return v
		}
	}
	require.NoError(t, lines.Err())
	require.Failf(t, "no such figure", "%s at %s", name, url)
	return 0
}
