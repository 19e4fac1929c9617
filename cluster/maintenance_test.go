// Maintenance guards: issued under the fitting state only, refused as soon as that state is over.

package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestMaintenanceGuard(t *testing.T) {
	maintain := func(r *rig, s fsm.Maintenance) {
		r.propose(fsm.SetMaintenance{ExpectedEpoch: r.engine.View().MaintenanceEpoch, State: s})
	}
	hold := func(r *rig, s fsm.Scope) func() {
		self := r.engine.Self()
		e := r.propose(fsm.StartExclusiveOperation{Scope: s, Owner: self.Node, Incarnation: self.Incarnation}).Epoch
		return func() {
			r.propose(fsm.CompleteExclusiveOperation{Scope: s, Owner: self.Node, Incarnation: self.Incarnation, Epoch: e})
		}
	}
	for name, c := range map[string]struct {
		act   cluster.Destructive
		begin func(r *rig) (node fsm.NodeID, end func())
		again func(r *rig) // brings an equal state about; nil when there is none
	}{
		"remove under full maintenance": {cluster.RemoveVoter, func(r *rig) (fsm.NodeID, func()) {
			maintain(r, fsm.FullMaintenance)
			return r.engine.Self().Node, func() { maintain(r, fsm.NoScheduling) }
		}, func(r *rig) { maintain(r, fsm.FullMaintenance) }},
		"remove a drained member": {cluster.RemoveVoter, func(r *rig) (fsm.NodeID, func()) {
			m := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Name: "leaves", Role: fsm.Learner,
				Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}}
			r.propose(fsm.AddLearner{ExpectedConfig: r.engine.View().Config, Member: m})
			for _, s := range []fsm.MemberState{fsm.Active, fsm.Draining, fsm.Leaving} {
				_, err := r.service.MaintenanceGuard(cluster.RemoveVoter, m.Node)
				require.ErrorIs(t, err, cluster.ErrNotInMaintenance)
				r.propose(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: s})
			}
			return m.Node, func() { r.propose(fsm.RemoveMember{ExpectedConfig: r.engine.View().Config, Node: m.Node}) }
		}, nil},
		"migrate": {cluster.MigrateCluster, func(r *rig) (fsm.NodeID, func()) {
			r.assign(fsm.MigrationCoordinator)
			return fsm.NodeID{}, hold(r, fsm.ClusterMigration)
		}, func(r *rig) { hold(r, fsm.ClusterMigration) }},
		"rotate trust": {cluster.RotateTrust, func(r *rig) (fsm.NodeID, func()) {
			return fsm.NodeID{}, hold(r, fsm.TrustRootRotation)
		}, func(r *rig) { hold(r, fsm.TrustRootRotation) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				_, err := r.service.MaintenanceGuard(c.act, r.engine.Self().Node)
				require.ErrorIs(t, err, cluster.ErrNotInMaintenance)
				node, end := c.begin(r)
				g, err := r.service.MaintenanceGuard(c.act, node)
				require.NoError(t, err)
				require.Equal(t, c.act, g.Act())
				require.Equal(t, node, g.Node())
				require.NoError(t, g.Check())

				old := r.engine.View()
				r.engine.lagging.Store(&old)
				r.engine.skew.Add(int64(cluster.ConfirmationBound + time.Millisecond))
				require.ErrorIs(t, g.Check(), cluster.ErrUnconfirmed)
				_, err = r.service.MaintenanceGuard(c.act, node)
				require.ErrorIs(t, err, cluster.ErrUnconfirmed)
				r.engine.lagging.Store(nil)
				require.NoError(t, g.Check())

				end()
				require.ErrorIs(t, g.Check(), cluster.ErrFenced)
				if c.again != nil {
					c.again(r)
					require.ErrorIs(t, g.Check(), cluster.ErrFenced, "an equal state is another one")
					_, err = r.service.MaintenanceGuard(c.act, node)
					require.NoError(t, err)
				}
				r.finish()
			})
		})
	}
	require.ErrorIs(t, cluster.MaintenanceGuard{}.Check(), cluster.ErrFenced, "the zero guard")
}

// TestAnotherProcessHoldsTheScope: the scope permits its holder alone.
func TestAnotherProcessHoldsTheScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		m := fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Name: "other", Role: fsm.Learner,
			Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}}
		r.propose(fsm.AddLearner{ExpectedConfig: r.engine.View().Config, Member: m})
		r.propose(fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: fsm.Active})
		r.propose(fsm.StartExclusiveOperation{Scope: fsm.TrustRootRotation, Owner: m.Node, Incarnation: m.Incarnation})
		_, err := r.service.MaintenanceGuard(cluster.RotateTrust, fsm.NodeID{})
		require.ErrorIs(t, err, cluster.ErrNotInMaintenance)
		r.finish()
	})
}
