// PostgreSQL away: for all, or for the role's owner alone.

package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// StopPostgres ends the server under load and starts it again after a while.
// Raft goes on with the same processes, the role stops, does not wander, and
// everything resumes alone. Settle then finds nothing lost and nothing run twice.
func StopPostgres(t testing.TB, w *World, away time.Duration) {
	w.moreLeases(t, 20)
	ctx := bounded(t)
	var pids []int
	for _, n := range w.Nodes() {
		pids = append(pids, n.PID())
	}
	b := w.strike(t, w.anyOwner(t),
		func(*fleet.Node) { require.NoError(t, w.Fleet.StopPostgres(ctx)) },
		func(*fleet.Node) { require.NoError(t, w.StartPostgres(ctx)) })
	stopped, before := b.at, b.epoch
	elapse(t, away-time.Duration(now()-stopped))
	for i, n := range w.Nodes() {
		require.Equal(t, pids[i], n.PID(), "%s ended because PostgreSQL was away", n.Name)
		s, err := n.WaitStatus(ctx, "a leader without PostgreSQL", func(s health.ClusterStatus) bool {
			return s.Leader.Node != (fsm.NodeID{}) && s.Quorum.VotersHealthy == s.Quorum.VotersTotal
		})
		require.NoError(t, err)
		require.Zero(t, s.Roles.Active, "a role is active without PostgreSQL")
	}
	moves, grants := w.moves(t, stopped, now())
	t.Logf("%s without PostgreSQL: %d grants, %d moves", away, grants, moves)
	require.LessOrEqual(t, moves, windows(away), "the role wandered")

	w.restorePostgres(t)
	_, after := w.owner(t, before)
	require.Greater(t, after, before)
	w.moreLeases(t, 20)
}

// StopIdlePostgres ends the server while nobody asks for anything: no statement is
// under way whose lost answer would cost the owner its epoch. The role stops all the
// same, and work is done again when the server is back. Nobody else may submit.
func StopIdlePostgres(t testing.TB, w *World) {
	ctx := bounded(t)
	b := w.strike(t, w.anyOwner(t),
		func(*fleet.Node) { require.NoError(t, w.Fleet.StopPostgres(ctx)) },
		func(*fleet.Node) { require.NoError(t, w.StartPostgres(ctx)) })
	within(t, 10*time.Second, b.at, b.ended.Mono, b.owner.Name+" gave the role up")
	w.restorePostgres(t)
	_, after := w.owner(t, b.epoch)
	require.Greater(t, after, b.epoch)
	w.ended(t, w.submitSpec(t, fleet.ShellRun("after", 4, "true")), runner.RunSucceeded)
}

// windows is how many back-off windows (1, 2, 4, … s) begin within a span: one
// move is allowed in each.
func windows(span time.Duration) (n int) {
	for w := time.Second; span > 0; w *= 2 {
		span -= w
		n++
	}
	return n
}

// CutOwnerFromPostgres takes PostgreSQL from the leader alone while it owns the
// role: it gives the role up within 10 s, and another daemon has it active within
// 12 s. Placement is sticky: the follower keeps it when the way is healed.
func CutOwnerFromPostgres(t testing.TB, w *World) {
	w.moreLeases(t, 20)
	var resets uint64 // of the owner, before
	b := w.strike(t, w.leadingOwner(t),
		func(n *fleet.Node) { resets = n.Proxy().Resets(); n.Proxy().Cut() },
		func(n *fleet.Node) { n.Proxy().Heal() })
	owner, before, cut := b.owner, b.epoch, b.at
	within(t, 10*time.Second, cut, b.ended.Mono, owner.Name+" gave the role up")
	var epoch fsm.Epoch
	successor := owner
	for epoch = before; successor.Name == owner.Name; { // it may renew before its report says that PostgreSQL is gone
		successor, epoch = w.owner(t, epoch)
	}
	within(t, 12*time.Second, cut, step(t, successor, epoch, trace.Active).Mono, "active on "+successor.Name)
	require.Greater(t, owner.Proxy().Resets(), resets, "nothing was cut")
	w.moreLeases(t, 10)
	w.healPostgres(t)
}

// healPostgres lets every daemon reach PostgreSQL and waits until each says so.
func (w *World) healPostgres(t testing.TB) {
	t.Helper()
	for _, n := range w.Nodes() {
		n.Proxy().Heal()
	}
	w.reachesPostgres(t)
}

// restorePostgres starts the server again and waits until each daemon says that it
// reaches it: one that does not know yet takes no submission, and says so.
func (w *World) restorePostgres(t testing.TB) {
	t.Helper()
	require.NoError(t, w.StartPostgres(bounded(t)))
	w.reachesPostgres(t)
}

func (w *World) reachesPostgres(t testing.TB) {
	t.Helper()
	for _, n := range w.Nodes() {
		_, err := n.WaitStatus(bounded(t), "PostgreSQL reachable again", func(s health.ClusterStatus) bool {
			pg := memberOf(s, n.ID).PGWritable
			return pg != nil && *pg
		})
		require.NoError(t, err)
	}
}
