// What the scenarios wait for and read from traces.

package bubble

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/roles/runner"
)

type healthStatus = health.ClusterStatus

// awaitDone waits until a run has at least count finished jobs.
func (f *Fleet) awaitDone(on *Node, id string, count int) {
	f.t.Helper()
	var doc runner.RunDocument
	defer func() {
		if f.t.Failed() {
			f.t.Logf("run %s: %d jobs were to be done, %d succeeded and %d failed", id, count, doc.Counts.Succeeded, doc.Counts.Failed)
		}
	}()
	f.Await("jobs are done", func() bool {
		doc = runner.RunDocument{}
		on.Call(http.MethodGet, "/v1/runs/"+id, struct{}{}, &doc)
		return doc.Counts.Succeeded+doc.Counts.Failed >= count
	})
}

func (f *Fleet) except(gone *Node) []*Node {
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n *Node) bool { return n == gone })
}

// pass lets virtual time pass.
func (f *Fleet) pass(d time.Duration) { <-time.After(d) }

// total is how many attempts were started.
func (s *starts) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.count)
}

// requireOnce: no attempt was started twice.
func (s *starts) requireOnce(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.count)
	for key, n := range s.count {
		require.Equal(t, 1, n, "attempt %s was started %d times", key, n)
	}
}

// first is the first event of a kind.
func first(t *testing.T, events []trace.Event, kind trace.Kind) trace.Event {
	t.Helper()
	i := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == kind })
	require.GreaterOrEqual(t, i, 0, "no %s in %v", kind, trace.Kinds(events))
	return events[i]
}

// revocation is the order of the three steps of revoking.
func revocation(events []trace.Event) []trace.Kind {
	steps := []trace.Kind{trace.Inactive, trace.Cancel, trace.Invalidate}
	var out []trace.Kind
	for _, k := range trace.Kinds(events) {
		if slices.Contains(steps, k) {
			out = append(out, k)
		}
	}
	return out
}
