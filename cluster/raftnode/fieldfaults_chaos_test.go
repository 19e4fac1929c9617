// The slow ones of the field faults: thousands of entries, each durable; minutes of elections.

//go:build chaos

package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With entries that reach beyond the snapshot the library is stuck: the node
// ends, and its next start catches up.
func TestFieldFaultReplicationSnapshotBeyond(t *testing.T) {
	t.Run("FB-019", func(t *testing.T) { divergedTail(t, 2*trailingLogs) })
}

// A leader that is back on its port before anybody can be sure that it was gone is answered by the timers: each of its
// deaths costs one leader, and nobody stands against the next one. Ten minutes of virtual time, in which a start takes none.
func TestChaosElectionsLeaderBackAtOnce(t *testing.T) {
	const deaths = 50
	counts := counted(t)
	split := uint64(0)
	wired(t, func(t *testing.T, w *wires) {
		for range deaths {
			old, term, at := w.leader(), w.term(), time.Now()
			w.kill(old)
			old.start(w.plug(old))
			next := w.leader()
			require.Greater(t, time.Since(at), DefaultTimers().HeartbeatTimeout-110*time.Millisecond, "by the timers alone")
			led := w.term()
			split += led - term - 1 // two timers may end at once: that costs a term and no leader
			<-time.After(12*time.Second - time.Since(at))
			require.Equal(t, led, w.term())
			require.Same(t, next, w.leader())
		}
	})
	require.Less(t, split, uint64(deaths/5))
	t.Logf("%d deaths, %d votes split, no other term", deaths, split)
	counts.Add("leader back at once", deaths)
}
