// A follower that owns the role loses the leader for a second: its epoch is spent and must end in exactly one command.

package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// CutOwnersLeaderLink cuts the link between the leader and the follower that owns
// the role for 1 s. The guard is revoked, one committed command ends its epoch (the
// owner's bump or release, or the leader's release of a silent owner), and the role is
// active again under a higher epoch, alone.
func CutOwnersLeaderLink(t testing.TB, w *World) {
	ctx := bounded(t)
	var leader *fleet.Node
	b := w.strike(t,
		func() (owner *fleet.Node, epoch fsm.Epoch) {
			owner, leader, epoch = w.followingOwner(t)
			return owner, epoch
		},
		func(owner *fleet.Node) {
			dropped := w.dropped(t)
			require.NoError(t, w.Cut(owner.Name, leader.Name))
			elapse(t, time.Second)
			require.Greater(t, w.dropped(t), dropped, "nothing was cut")
			require.NoError(t, w.Mend(owner.Name, leader.Name))
		},
		func(*fleet.Node) {})
	owner, epoch := b.owner, b.epoch
	successor, after := w.owner(t, epoch)

	own := steps(t, owner, epoch, trace.Bump, trace.Release)
	s, err := successor.Status(ctx)
	require.NoError(t, err)
	vacated, later := 0, s.Leader.Epoch.Epoch > epoch // a new leader grants every role anew: no command of ours to count
	for _, r := range s.RoleRows {
		if l := r.LastRelease; r.Role == role && l != nil {
			later = later || l.Epoch > epoch // hides the one we look for
			if l.Epoch == epoch && l.Code == placement.CodeOwnerSilent {
				vacated = 1
			}
		}
	}
	t.Logf("epoch %d of %s, revoked (%s) -> %d of %s; commands: owner %d, leader %d", epoch, owner.Name, b.ended.Detail, after, successor.Name, own, vacated)
	require.LessOrEqual(t, own+vacated, 1, "more than one command ended the spent epoch")
	require.True(t, later || own+vacated == 1, "no command ended the spent epoch")
	w.moreLeases(t, 10)
	w.healPostgres(t)
}
