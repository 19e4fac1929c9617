// kill -9 of the role's owner, and what the daemon owns when it comes back.

package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// KillOwner kills the role's owner under load after leases more leases were made.
// The role is active elsewhere under a higher epoch, the killed incarnation never
// acts again, and the daemon, started again under load, rejoins as a new
// incarnation that owns nothing it was not given again.
func KillOwner(t testing.TB, w *World, leases int) {
	w.moreLeases(t, leases)
	ctx := bounded(t)
	f, err := w.KillLeader(ctx)
	require.NoError(t, err)
	require.Greater(t, f.EpochAfter, f.EpochBefore)
	t.Logf("%s killed, epoch %d -> %d, first lease after %s", f.Node, f.EpochBefore, f.EpochAfter, f.Took)
	mark := w.count(t, `SELECT max(seq) FROM hist`)

	killed, err := w.Node(f.Node)
	require.NoError(t, err)
	dead := lastLife(t, killed)
	require.NoError(t, killed.Resume(ctx))
	s, err := killed.WaitStatus(ctx, "the killed daemon under a new incarnation", func(s health.ClusterStatus) bool {
		m := memberOf(s, killed.ID)
		return m.Incarnation != dead && !m.Incarnation.IsZero() && s.Quorum.VotersHealthy == s.Quorum.VotersTotal
	})
	require.NoError(t, err)
	reborn := memberOf(s, killed.ID).Incarnation
	w.moreLeases(t, 10)

	for _, e := range traceOf(t, killed) {
		if e.Incarnation == reborn && e.Kind == trace.Grant {
			require.Greater(t, e.Epoch, f.EpochBefore, "it took up an epoch of its former life")
		}
	}
	for _, r := range s.RoleRows {
		require.NotEqual(t, dead, r.Incarnation, "%s still belongs to the killed process", r.Role)
	}
	require.Zero(t, w.count(t, `SELECT count(*) FROM hist WHERE seq > $1 AND inc = $2`, mark, dead.String()), "the killed incarnation acted")
}

// lastLife is the incarnation that a daemon traced last.
func lastLife(t testing.TB, n *fleet.Node) fsm.IncarnationID {
	t.Helper()
	events := traceOf(t, n)
	require.NotEmpty(t, events)
	return events[len(events)-1].Incarnation
}

func memberOf(s health.ClusterStatus, id fsm.NodeID) health.MemberRow {
	for _, m := range s.Members {
		if m.Node == id {
			return m
		}
	}
	return health.MemberRow{}
}
