// A long pause of the role's owner (SIGSTOP): a process that wakes must not believe that it still owns.

package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// PauseOwner stops the role's owner for 10 s under load and wakes it. Another
// process has the role under a higher epoch by then. The first check of the old
// guard after waking is refused, and the guard is revoked within 100 ms.
func PauseOwner(t testing.TB, w *World) {
	w.moreLeases(t, 20)
	owner, before := w.pausedOwner(t)
	slept := now()
	elapse(t, 10*time.Second)
	successor, after := w.owner(t, before)
	require.NotEqual(t, owner.Name, successor.Name)
	w.moreLeases(t, 10)

	woke := now()
	require.NoError(t, owner.Resume(bounded(t)))
	inactive := step(t, owner, before, trace.Inactive)
	require.Greater(t, inactive.Mono, slept, "the guard was revoked before the pause")
	within(t, 100*time.Millisecond, woke, inactive.Mono, "revoked after waking")
	refused := step(t, owner, before, trace.CheckRefused)
	require.GreaterOrEqual(t, refused.Mono, slept)
	t.Logf("epoch %d of %s -> %d of %s; first check after waking: %s", before, owner.Name, after, successor.Name, refused.Detail)

	require.Zero(t, w.count(t, `
		SELECT count(*) FROM hist h WHERE h.kind = 'write' AND h.epoch = $1
		   AND h.seq > (SELECT min(seq) FROM hist WHERE kind = 'acquire' AND role = h.role AND epoch > $1)`, int64(before)),
		"rows of the old epoch after the successor's first")
	w.whole(t, owner)
}

// pausedOwner stops a daemon that owns the role at that moment.
func (w *World) pausedOwner(t testing.TB) (*fleet.Node, fsm.Epoch) {
	t.Helper()
	for range tries {
		owner, epoch := w.owner(t, 0)
		require.NoError(t, owner.Pause(bounded(t)))
		if steps(t, owner, epoch, trace.Inactive) == 0 {
			return owner, epoch
		}
		require.NoError(t, owner.Resume(bounded(t)))
		w.whole(t, owner)
	}
	require.FailNow(t, "the role never stayed long enough to be paused")
	return nil, 0
}
