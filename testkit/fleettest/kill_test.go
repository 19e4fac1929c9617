// kill -9 of the leader under load.

package fleettest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// leasesBeforeKill is the least traffic before a kill: less would prove nothing.
const leasesBeforeKill = 500

// TestKillLeaderFailover kills the scheduler's owner three times under load. Each
// time the role is active again under a higher epoch, the killed incarnation
// never acts again, and the daemon that comes back owns nothing it was not
// given again.
func TestKillLeaderFailover(t *testing.T) {
	w := start(t, fleet.Options{Agents: 4, Slots: 8})
	var last fsm.Epoch
	for round := range 3 {
		w.load("kill", leasesBeforeKill+200, "true")
		require.NoError(t, w.WaitLeases(w.ctx, (round+1)*leasesBeforeKill+round*200))
		f, err := w.KillLeader(w.ctx)
		require.NoError(t, err)
		require.Greater(t, f.EpochAfter, f.EpochBefore)
		require.GreaterOrEqual(t, f.EpochBefore, last)
		last = f.EpochAfter
		t.Logf("round %d: %s killed, epoch %d -> %d in %s", round, f.Node, f.EpochBefore, f.EpochAfter, f.Took)

		killed, err := w.Node(f.Node)
		require.NoError(t, err)
		require.NoError(t, killed.Resume(w.ctx))
		_, err = killed.WaitStatus(w.ctx, "the killed daemon follows again", func(s health.ClusterStatus) bool {
			return s.Leader.Node != (fsm.NodeID{}) && s.Quorum.VotersHealthy == 3
		})
		require.NoError(t, err)
		_, epoch, err := w.RoleOwner(w.ctx, fsm.SchedulerLeader, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, epoch, f.EpochAfter, "the daemon that came back took the role with an old epoch")
	}
	w.settle(3 * leasesBeforeKill)
}
