// A daemon whose disk is full: it gives its part up, says so, and takes it again when there is room.

package scenario

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// DataSpace is what a daemon of a fleet needs whose disks shall be filled.
const DataSpace = 48 << 20

// exitStorage is the exit status of a daemon that can no longer write its log.
const exitStorage = 74

// FillDisk fills the disk of the leader, which owns the role, under load, and has
// entries committed until its log cannot be written. Another daemon leads and owns
// the role under a higher epoch; the full one says why, and either goes on without
// a part or ends with the exit status of its disk. With room again, and started
// again where it ended, it is a healthy voter that has all entries. The fleet
// needs disks of its own.
func FillDisk(t testing.TB, w *World) {
	w.moreLeases(t, 20)
	ctx := bounded(t)
	victim, before := w.leadingOwner(t)()
	told := logged(t, victim, cluster.ErrStoreFailed.Code)
	filled, err := victim.FillDisk()
	require.NoError(t, err)
	_, stop := w.entries(t)
	defer stop()

	successor, after := w.ownerBeside(t, victim, before)
	stop()
	require.Greater(t, after, before)
	eventually(t, victim.Name+" says that its disk fails", func() bool { return logged(t, victim, cluster.ErrStoreFailed.Code) > told })
	w.moreLeases(t, 10)
	state := victim.State()
	if state == "dead" {
		code, err := victim.WaitExit(ctx)
		require.NoError(t, err)
		require.Equal(t, exitStorage, code, "see %s", victim.LogFile())
	}

	require.NoError(t, victim.FreeDisk())
	if victim.State() == "running" { // it may end late, by its watchdog, or recover by itself
		waitHealthyOrDead(t, w, successor, victim)
	}
	if victim.State() == "dead" {
		code, err := victim.WaitExit(ctx)
		require.NoError(t, err)
		require.Equal(t, exitStorage, code, "see %s", victim.LogFile())
		require.NoError(t, victim.Resume(ctx))
	}
	w.whole(t, victim)
	w.moreLeases(t, 10)
	index := w.whole(t, successor).AppliedIndex
	eventually(t, victim.Name+" has all entries", func() bool {
		s, err := victim.Status(bounded(t))
		return err == nil && s.AppliedIndex >= index
	})
	t.Logf("%s: %d bytes filled, then %s; epoch %d -> %d of %s", victim.Name, filled, state, before, after, successor.Name)
}

// acknowledged is what daemons have answered of committed entries: at least so many are there.
type acknowledged struct {
	count int // answers
	index uint64
	epoch fsm.Epoch
}

// entries has the cluster commit entries until stop: each collection takes and frees a
// scope under an epoch of its own. seen is what was acknowledged so far.
func (w *World) entries(t testing.TB) (seen func() acknowledged, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var mu sync.Mutex
	var all acknowledged
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			nodes := w.Nodes()
			// While nobody leads it is refused.
			if n := nodes[i%len(nodes)]; n.State() == "running" && n.Call(ctx, http.MethodPost, "/v1/gc", nil, nil) == nil {
				if s, err := n.Status(ctx); err == nil {
					mu.Lock()
					all = acknowledged{all.count + 1, max(all.index, s.AppliedIndex), max(all.epoch, s.Epoch)}
					mu.Unlock()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	seen = func() acknowledged {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
	return seen, func() {
		cancel()
		<-done
	}
}

// ownerBeside waits until another daemon than this one has the role.
func (w *World) ownerBeside(t testing.TB, n *fleet.Node, above fsm.Epoch) (*fleet.Node, fsm.Epoch) {
	t.Helper()
	for {
		owner, epoch := w.owner(t, above)
		if owner.Name != n.Name {
			return owner, epoch
		}
		above = epoch
	}
}

// waitHealthyOrDead waits until a daemon has recovered in the eyes of another one, or has ended.
func waitHealthyOrDead(t testing.TB, w *World, witness, n *fleet.Node) {
	t.Helper()
	eventually(t, n.Name+" recovers or ends", func() bool {
		if n.State() == "dead" {
			return true
		}
		s, err := witness.Status(bounded(t))
		return err == nil && s.Quorum.VotersHealthy == s.Quorum.VotersTotal
	})
}

// logged counts what a daemon has logged of something.
func logged(t testing.TB, n *fleet.Node, word string) int {
	t.Helper()
	log, err := os.ReadFile(n.LogFile())
	require.NoError(t, err)
	return bytes.Count(log, []byte(word))
}
