// Processes that sleep without anybody being told: PostgreSQL as a whole, and a daemon that leads nothing.

package scenario

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// answersWithin bounds what a daemon says of the cluster, whatever PostgreSQL does.
const answersWithin = 500 * time.Millisecond

// PausePostgres stops PostgreSQL with SIGSTOP for a while: no session ends and
// nobody is answered. Raft goes on with the same leader and term, daemons answer
// what needs no database, a submission is not acknowledged, and when it wakes
// everything goes on alone.
func PausePostgres(t testing.TB, w *World, away time.Duration) {
	for range tries {
		if w.pausePostgres(t, away) {
			return
		}
	}
	require.FailNow(t, "leadership moved each time that PostgreSQL slept")
}

// pausePostgres reports whether leadership stayed meanwhile: on a starved machine
// it may move by itself.
func (w *World) pausePostgres(t testing.TB, away time.Duration) (stayed bool) {
	w.moreLeases(t, 20)
	pids := map[string]int{}
	for _, n := range w.Nodes() {
		pids[n.Name] = n.PID()
	}
	leader, err := w.Leader(bounded(t))
	require.NoError(t, err)
	before := w.whole(t, leader)
	require.NoError(t, w.Fleet.PausePostgres())
	began := now()
	defer func() { require.NoError(t, w.ResumePostgres()) }()
	for _, n := range w.Nodes() {
		asked := now()
		_, err := n.Status(bounded(t))
		require.NoError(t, err)
		within(t, answersWithin, asked, now(), n.Name+" answered without PostgreSQL")
	}
	require.False(t, w.submittedWithin(t, leader, away-time.Duration(now()-began)), "a run was acknowledged that no database holds")
	elapse(t, away-time.Duration(now()-began))
	during, err := leader.Status(bounded(t))
	require.NoError(t, err)
	require.NoError(t, w.ResumePostgres())
	woke := now()

	w.owner(t, 0)
	w.moreLeases(t, 20)
	within(t, 10*time.Second, woke, now(), "leases again")
	for _, n := range w.Nodes() {
		require.Equal(t, pids[n.Name], n.PID(), "%s ended because PostgreSQL slept", n.Name)
	}
	w.healPostgres(t)
	t.Logf("PostgreSQL slept %s: term %d -> %d, epoch %d -> %d", away, before.Term, during.Term, before.Epoch, during.Epoch)
	return same(before, during)
}

// submittedWithin submits a run and reports whether that was acknowledged within a span.
func (w *World) submittedWithin(t testing.TB, n *fleet.Node, span time.Duration) bool {
	ctx, done := context.WithTimeout(bounded(t), span)
	defer done()
	spec := runner.RunSpec{Name: "unheard", Jobs: []runner.JobSpec{shell("only", "true")}}
	return n.Call(ctx, http.MethodPost, "/v1/runs", spec, nil) == nil
}

// PauseFollower stops a daemon that neither leads nor owns the role for a while.
// Nobody notices: no lease is lost, and when it wakes there is the same leader in
// the same term, and the role under the same epoch.
func PauseFollower(t testing.TB, w *World, asleep time.Duration) {
	for try := 1; try <= tries; try++ {
		w.moreLeases(t, 20)
		ctx := bounded(t)
		owner, epoch := w.owner(t, 0)
		leader, err := w.Leader(ctx)
		require.NoError(t, err)
		before := w.whole(t, leader)
		follower := w.bystander(t, owner, leader)
		require.NoError(t, follower.Pause(ctx))
		elapse(t, asleep)
		w.moreLeases(t, 10)
		during, err := leader.Status(ctx)
		require.NoError(t, err)
		require.NoError(t, follower.Resume(ctx))
		w.whole(t, follower)
		w.moreLeases(t, 10)
		after := w.whole(t, leader)
		_, last := w.owner(t, 0)
		if same(before, during) { // else a starved machine has moved the leader while only one follower was left
			require.True(t, same(before, after), "the daemon that woke disturbed the others: term %d -> %d", before.Term, after.Term)
			require.Equal(t, epoch, last, "the role took an extra epoch")
			t.Logf("%s slept %s: term %d, epoch %d of %s", follower.Name, asleep, after.Term, last, owner.Name)
			return
		}
		t.Logf("void: term %d -> %d while %s slept", before.Term, during.Term, follower.Name)
	}
	require.FailNow(t, "the leader never lasted")
}

func same(a, b health.ClusterStatus) bool { return a.Term == b.Term && a.Leader.Node == b.Leader.Node }

// bystander is a daemon that is none of these.
func (w *World) bystander(t testing.TB, others ...*fleet.Node) *fleet.Node {
	t.Helper()
	taken := map[fsm.NodeID]bool{}
	for _, n := range others {
		taken[n.ID] = true
	}
	for _, n := range w.Nodes() {
		if !taken[n.ID] {
			return n
		}
	}
	require.FailNow(t, "every daemon has a part")
	return nil
}
