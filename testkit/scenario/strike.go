// Striking the role's owner: a fault counts only when the role was the victim's at that moment.

package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// tries bounds how often a fault that missed is made again.
const tries = 5

// blow is a fault that hit.
type blow struct {
	owner *fleet.Node
	epoch fsm.Epoch // that the fault ended
	at    int64     // when it was made
	ended trace.Event
}

// strike makes a fault against the owner that pick names and waits until the
// guard is revoked. On a starved machine the role may move by itself in the moment
// between; such a try is void, undone and repeated.
func (w *World) strike(t testing.TB, pick func() (*fleet.Node, fsm.Epoch), fault, undo func(*fleet.Node)) blow {
	t.Helper()
	for range tries {
		owner, epoch := pick()
		b := blow{owner: owner, epoch: epoch, at: now()}
		fault(owner)
		b.ended = step(t, owner, epoch, trace.Inactive)
		if b.ended.Mono >= b.at {
			return b
		}
		t.Logf("void: epoch %d of %s ended (%s) before the fault", epoch, owner.Name, b.ended.Detail)
		undo(owner)
		w.whole(t, owner)
	}
	require.FailNow(t, "the role never stayed long enough to be struck")
	return blow{}
}

// anyOwner picks whoever owns the role.
func (w *World) anyOwner(t testing.TB) func() (*fleet.Node, fsm.Epoch) {
	return func() (*fleet.Node, fsm.Epoch) { return w.owner(t, 0) }
}

// leadingOwner picks an owner that leads. Placement is sticky, so after some
// faults a follower owns the role; a change of leader gives all roles to the new one.
func (w *World) leadingOwner(t testing.TB) func() (*fleet.Node, fsm.Epoch) {
	return func() (*fleet.Node, fsm.Epoch) {
		t.Helper()
		ctx := bounded(t)
		for range tries {
			owner, epoch := w.owner(t, 0)
			leader, err := w.Leader(ctx)
			require.NoError(t, err)
			if leader.Name == owner.Name {
				return owner, epoch
			}
			require.NoError(t, leader.Kill())
			w.owner(t, epoch)
			require.NoError(t, leader.Resume(ctx))
			w.whole(t, leader)
		}
		require.FailNow(t, "no leader came to own the role")
		return nil, 0
	}
}

// followingOwner finds an owner that follows, or makes one: it takes PostgreSQL from
// a leader that owns the role, so that placement moves it. healPostgres undoes that.
func (w *World) followingOwner(t testing.TB) (owner, leader *fleet.Node, epoch fsm.Epoch) {
	t.Helper()
	for range tries {
		var err error
		owner, epoch = w.owner(t, 0)
		leader, err = w.Leader(bounded(t))
		require.NoError(t, err)
		if leader.Name != owner.Name {
			return owner, leader, epoch
		}
		for _, n := range w.Nodes() {
			n.Proxy().Heal()
		}
		leader.Proxy().Cut()
		for owner.Name == leader.Name {
			owner, epoch = w.owner(t, epoch)
		}
	}
	require.FailNow(t, "no follower came to own the role")
	return nil, nil, 0
}
