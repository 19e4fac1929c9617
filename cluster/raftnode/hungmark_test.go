// A disk that hangs under the high-water mark: entries go on being applied, the process ends as for any write, closing is bounded.

package raftnode

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
)

// hungMark holds each write of a high-water mark up once it was told to.
type hungMark struct {
	on    atomic.Bool
	hangs chan struct{} // holds a value once a write hangs; capacity 1
	let   chan struct{}
	end   func() // ends the hang; it may be called again
}

func newHungMark() *hungMark {
	h := &hungMark{hangs: make(chan struct{}, 1), let: make(chan struct{})}
	h.end = sync.OnceFunc(func() { close(h.let) })
	return h
}

func (h *hungMark) hold(c *Config) {
	c.beforeMark = func() {
		if !h.on.Load() {
			return
		}
		select {
		case h.hangs <- struct{}{}:
		default:
		}
		<-h.let
	}
}

func maintenance(leader *member, to fsm.Maintenance) fsm.Command {
	return fsm.SetMaintenance{ExpectedEpoch: leader.node.View().MaintenanceEpoch, State: to}
}

// begin returns once a write of the node's mark hangs. Who applies must not wait for it: the clock of
// a bubble stands still while anybody waits for a mutex, so that is looked at, and not waited for.
func (h *hungMark) begin(t *testing.T, f *fleet, m *member) {
	t.Helper()
	h.on.Store(true)
	commit := f.propose(f.leader().node, maintenance(f.leader(), fsm.NoScheduling))
	<-h.hangs
	require.True(t, m.node.store.high.mu.TryLock(), "a write that hangs holds the lock that an apply needs")
	m.node.store.high.mu.Unlock()
	f.eventually(func() bool { return m.node.View().Index >= commit.Index })
}

func TestHungMarkIsAHungDisk(t *testing.T) {
	const limit = 2 * time.Second
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		m.close()
		h := newHungMark()
		defer h.end()
		codes := make(chan int, 1)
		m.start(h.hold, func(c *Config) {
			c.StallLimit = limit
			c.Exit = func(code int, reason string) { codes <- code; m.exits <- reason }
		})
		f.eventually(func() bool { return m.node.View().Index >= leader.node.View().Index })

		h.begin(t, f, m)
		begin := time.Now()
		for i := range 5 {
			commit := f.propose(leader.node, maintenance(leader, fsm.Maintenance(1+i%2)))
			f.eventually(func() bool { return m.node.View().Index >= commit.Index })
		}
		require.Less(t, time.Since(begin), limit/2)
		require.NoError(t, m.node.Failure())

		select {
		case code := <-codes:
			require.Equal(t, ExitStorage, code)
		case <-time.After(3 * limit):
			require.FailNow(t, "its disk hangs, and nobody is told")
		}
		require.Contains(t, <-m.exits, ErrStoreStalled.Code)
		require.ErrorIs(t, m.node.Failure(), ErrStoreStalled)
		require.Less(t, time.Since(begin), limit+limit/5, "two looks above the limit, one for the entries before")
	})
}

// A node that is closed while its mark hangs is closed in time, takes no part any more, and lets go of its files when the disk is back.
func TestClosedWhileItsMarkHangs(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		h := newHungMark()
		defer h.end()
		m.start(bootstrap, h.hold, func(c *Config) { c.StallLimit = time.Hour })
		f.leader()
		h.begin(t, f, m)

		n := m.node
		m.node = nil
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		select {
		case err := <-closed:
			require.ErrorIs(t, err, ErrStoreStalled)
		case <-time.After(2 * (drainBound + closeBound)):
			require.FailNow(t, "it is not closed while its disk hangs")
		}
		select {
		case <-n.ended:
		default:
			require.FailNow(t, "the library runs on")
		}
		h.end()
		<-time.After(closeBound)
		m.start()
		f.leader()
		f.propose(m.node, maintenance(m, fsm.ReadOnly))
	})
}
