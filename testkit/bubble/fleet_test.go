// A three-node fleet in virtual time: it elects, runs jobs, loses its leader to a partition, and goes on.

package bubble

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// starts counts how often each (job, attempt) was executed.
type starts struct {
	mu    sync.Mutex
	count map[string]int
}

// executor runs jobs that take a moment of virtual time.
func (s *starts) executor(took time.Duration) runner.Executor {
	return runner.ExecutorFunc(func(ctx context.Context, task runner.Task, _ io.Writer) runner.Exit {
		s.mu.Lock()
		s.count[fmt.Sprintf("%s/%d", task.Job, task.Attempt)]++
		s.mu.Unlock()
		select {
		case <-time.After(took):
			zero := 0
			return runner.Exit{Code: &zero}
		case <-ctx.Done():
			return runner.Exit{Err: context.Cause(ctx)}
		}
	})
}

func run(name string, jobs int) runner.RunSpec {
	spec := runner.RunSpec{Name: name}
	for i := range jobs {
		spec.Jobs = append(spec.Jobs, runner.JobSpec{Name: fmt.Sprintf("job-%03d", i), Argv: []string{"work"}})
	}
	return spec
}

// TestLeaderIsolated: the leader is cut off from its peers but not from
// PostgreSQL. It stops its role within the confirmation bound by its own clock,
// the majority owns the role under a higher epoch, and no attempt starts twice.
func TestLeaderIsolated(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 1)
		ran := &starts{count: map[string]int{}}
		f.StartAgent("agent-1", 4, ran.executor(300*time.Millisecond))
		f.StartAgent("agent-2", 4, ran.executor(300*time.Millisecond))

		old, before := f.ActiveAbove(fsm.SchedulerLeader, 0, f.Nodes...)
		var doc runner.RunDocument
		old.Call(http.MethodPost, "/v1/runs", run("isolated", 48), &doc)
		f.awaitDone(f.Nodes[0], doc.ID, 20)

		cut := time.Now()
		f.Isolate(old)
		others := f.except(old)
		_, after := f.ActiveAbove(fsm.SchedulerLeader, before, others...)
		require.Greater(t, after, before)

		events := old.Trace.Of(fsm.SchedulerLeader, before)
		inactive := first(t, events, trace.Inactive)
		require.LessOrEqual(t, time.Duration(inactive.Mono-trace.Mono(cut)), 5*(cluster.ConfirmationBound+250*time.Millisecond), "the isolated leader kept its role for too long")
		require.Equal(t, []trace.Kind{trace.Inactive, trace.Cancel, trace.Invalidate}, revocation(events))

		f.awaitDone(others[0], doc.ID, 48)
		f.Heal()
		old.Await("follows again", func(s healthStatus) bool { return !s.Leader.Node.IsZero() && s.Leader.Node != old.ID })
		ran.requireOnce(t)
	})
}
