// No quorum at all, and a member that comes back.

package bubble

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// TestNoQuorum: all daemons are cut off from each other. Nothing is granted,
// running jobs complete, every daemon says why; healed, the work goes on by itself.
func TestNoQuorum(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 2)
		ran := &starts{count: map[string]int{}}
		f.StartAgent("agent-1", 4, ran.executor(5*time.Second))
		_, before := f.ActiveAbove(role, 0, f.Nodes...)
		id := f.submit(f.Nodes[0], run("parted", 8))
		f.Await("four jobs run", func() bool { return ran.total() == 4 })

		for _, n := range f.Nodes {
			f.Isolate(n)
		}
		cut := time.Now()
		for _, n := range f.Nodes {
			s := n.Await("sees no quorum", func(s healthStatus) bool { return s.Headline == health.NoQuorum })
			require.LessOrEqual(t, time.Since(cut), 5*2*time.Second, "it takes too long until it is seen")
			require.NotEmpty(t, s.Reasons)
			require.NotEqual(t, health.ReadQuorum, s.Read)
		}
		f.awaitDone(f.Nodes[2], id, 4)
		f.pass(10 * time.Second)
		require.Equal(t, 4, ran.total(), "nobody may lease without a quorum")
		for _, n := range f.Nodes {
			s := n.Status()
			require.Equal(t, health.NoQuorum, s.Headline)
			require.Contains(t, fmt.Sprint(s.Reasons), "no majority")
			for _, e := range n.Trace.Events() {
				require.False(t, e.Kind == trace.Grant && e.Mono > trace.Mono(cut), "%+v", e)
			}
		}

		f.Heal()
		_, after := f.ActiveAbove(role, before, f.Nodes...)
		require.Greater(t, after, before)
		f.awaitDone(f.Nodes[0], id, 8)
		ran.requireOnce(t)
	})
}

// TestFollowerRestarts: a member that comes back is a new incarnation and owns
// nothing that it was not given again; nothing moves because of it.
func TestFollowerRestarts(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 3)
		owner, epoch := f.ActiveAbove(role, 0, f.Nodes...)
		follower := f.except(f.leader())[0]
		require.NotEqual(t, owner, follower)
		old := incarnation(t, owner.Status(), follower)
		follower.Stop()
		require.NoError(t, follower.Start(daemon.Start{}))
		owner.Await("the follower is back", func(s healthStatus) bool {
			return incarnation(t, s, follower) != old && s.Headline == health.Healthy
		})
		f.pass(2 * time.Second)
		for _, e := range follower.Trace.Events() {
			require.NotEqual(t, trace.Grant, e.Kind)
		}
		still, same := f.ActiveAbove(role, 0, f.Nodes...)
		require.Equal(t, owner, still)
		require.Equal(t, epoch, same)
	})
}

func incarnation(t *testing.T, s healthStatus, n *Node) string {
	t.Helper()
	for _, m := range s.Members {
		if m.Node == n.ID {
			return m.Incarnation.String()
		}
	}
	require.FailNow(t, "no member", n.Name)
	return ""
}

func (f *Fleet) submit(to *Node, spec any) string {
	f.t.Helper()
	var doc struct {
		ID string `json:"id"`
	}
	to.Call(http.MethodPost, "/v1/runs", spec, &doc)
	require.NotEmpty(f.t, doc.ID)
	return doc.ID
}
