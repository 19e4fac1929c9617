// Watches the disk: a write that hangs, a log that is damaged under the running node, and the high-water mark.

package raftnode

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
)

// watchStore ends this node's part when one log write has been outstanding past
// the limit: heartbeats leave on other goroutines, so without this a leader
// whose disk hangs would be followed for ever while no write succeeds.
func (n *Node) watchStore() {
	tick := time.NewTicker(max(n.cfg.StallLimit/20, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-n.stop.Done():
			return
		case <-tick.C:
		}
		if d := n.log.outstanding(); d > n.cfg.StallLimit {
			e := ErrStoreStalled.Wrap(nil, "a log write has been outstanding for %s", d.Round(time.Millisecond))
			n.fail(e)
			n.cfg.Exit(ExitStorage, e.Error())
			n.fallSilent()
			return
		}
	}
}

// fallSilent stops the heartbeats where Exit returned: closing the transport is
// the only way, as the library's own loop hangs in the write.
func (n *Node) fallSilent() {
	if t, ok := n.cfg.Transport.(raft.WithClose); ok {
		_ = t.Close()
	}
}

// logBroken: the library panics on the error that follows, so the process goes
// down in order before it.
func (n *Node) logBroken(err error) {
	e := cluster.ErrStoreCorrupt.Wrap(err, "the log was damaged while in use")
	n.fail(e)
	n.cfg.Exit(ExitStorage, e.Error())
}

// logFailed: the library steps down and goes on; space may return.
func (n *Node) logFailed(err error) {
	n.cfg.Logger.Error("log write failed", "code", cluster.ErrStoreFailed.Code, "error", err, "hint", cluster.ErrStoreFailed.Hint)
}

// markLoop keeps the high-water mark close behind the applied index (at once
// after a membership change, else once per markInterval) and takes the periodic snapshot.
func (n *Node) markLoop() {
	tick := time.NewTicker(markInterval)
	defer tick.Stop()
	config := n.machine.current().Config
	period := time.NewTicker(snapshotPeriod)
	defer period.Stop()
	for {
		select {
		case <-n.stop.Done():
			return
		case <-period.C:
			n.snapshot()
			continue
		case <-tick.C:
		case <-n.remark:
			was := config
			if config = n.machine.current().Config; config == was {
				continue
			}
		}
		if err := n.store.high.flush(); err != nil {
			n.cfg.Logger.Warn("high-water mark not written", "code", cluster.ErrStoreFailed.Code, "error", err)
		}
	}
}

// snapshot compacts what changed since the last one, however little (§179).
func (n *Node) snapshot() {
	if index := n.machine.current().Index; n.snapshotAt.Swap(index) == index {
		return
	}
	err := n.await(n.stop, func() error { return n.raft.Snapshot().Error() })
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		n.cfg.Logger.Warn("periodic snapshot not taken", "error", err)
	}
}
