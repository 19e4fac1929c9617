// Exclusive operations over the end of their owner: abandoned, never silently finished.

package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// requireAbandoned: the operation stays held, and without authority.
func requireAbandoned(t *testing.T, l *lab, s Scope, epoch Epoch) {
	t.Helper()
	x, held := l.s.View().Held(s)
	require.True(t, held)
	require.Equal(t, epoch, x.Epoch)
	require.True(t, l.s.View().Abandoned(x))
	rej := l.refuse(RejectAbandoned, StartExclusiveOperation{Scope: s, Owner: node(1), Incarnation: inc(1)})
	require.Equal(t, epoch, rej.Current)
	l.refuse(RejectAbandoned, StartExclusiveOperation{Scope: s, Owner: node(1), Incarnation: inc(1), Abandoned: epoch - 1})
}

func TestAbandonedOperationIsTakenOver(t *testing.T) {
	l := fleet(t)
	old := l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2)})
	l.refuse(RejectHeld, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1), Abandoned: old.Epoch})
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), Incarnation: inc(22)})
	requireAbandoned(t, l, GlobalGcCoordination, old.Epoch)

	// Neither the process that ended nor the one that replaced it completes it.
	for _, i := range []uint64{2, 22} {
		l.refuse(RejectNotOwner, CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(i), Epoch: old.Epoch})
	}
	next := l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(3), Incarnation: inc(3), Abandoned: old.Epoch})
	require.Greater(t, next.Epoch, old.Epoch)
	l.refuse(RejectHeld, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1), Abandoned: old.Epoch})
	l.must(CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(3), Incarnation: inc(3), Epoch: next.Epoch})
	require.Empty(t, l.s.View().Exclusive)
}

// TestCoordinatedScopes: a scope with a coordinator is held by the owner of
// that role, and no longer than under the epoch in which it began.
func TestCoordinatedScopes(t *testing.T) {
	for scope, role := range map[Scope]Role{
		ReleaseChannelPromotion: ReleaseCoordinator, ClusterMigration: MigrationCoordinator, DeploymentGlobalSwitch: DeploymentCoordinator,
	} {
		for name, end := range map[string]func(l *lab){
			"moved": func(l *lab) { l.assign(role, 3) },
			"renewed": func(l *lab) {
				l.must(BumpEpoch{Role: role, ExpectedEpoch: l.s.View().Role(role).Epoch, Node: node(2), Incarnation: inc(2)})
			},
			"released": func(l *lab) {
				l.must(ReleaseRole{Role: role, ExpectedEpoch: l.s.View().Role(role).Epoch, Node: node(2), Incarnation: inc(2)})
			},
			"elected": func(l *lab) { l.elect(3); l.assign(role, 2) },
		} {
			t.Run(scope.String()+"/"+name, func(t *testing.T) {
				l := fleet(t)
				start := StartExclusiveOperation{Scope: scope, Owner: node(2), Incarnation: inc(2)}
				l.refuse(RejectNotOwner, start)
				l.assign(role, 2)
				x := l.must(start)
				held, _ := l.s.View().Held(scope)
				require.False(t, l.s.View().Abandoned(held))
				end(l)
				requireAbandoned(t, l, scope, x.Epoch)
				l.refuse(RejectNotOwner, CompleteExclusiveOperation{Scope: scope, Owner: node(2), Incarnation: inc(2), Epoch: x.Epoch})

				l.assign(role, 1)
				l.must(StartExclusiveOperation{Scope: scope, Owner: node(1), Incarnation: inc(1), Abandoned: x.Epoch})
			})
		}
	}
}
