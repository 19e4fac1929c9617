// What bounds the log: the high-water mark on disk, and the snapshots that the library's entry count does not trigger.

package raftnode

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
)

// SnapshotPolicy says when the log is compacted (§181): at whichever comes
// first, and when anything changed within two minutes. Zero fields take the defaults.
type SnapshotPolicy struct {
	Entries uint64 // log entries since the last snapshot; default 1024
	Bytes   uint64 // bytes of log entries since the last snapshot; default 2 MiB
	// Trailing entries stay behind a snapshot, so that a follower that lags a little needs none; default 1024.
	Trailing uint64
}

func (p SnapshotPolicy) withDefaults() SnapshotPolicy {
	if p.Entries == 0 {
		p.Entries = snapshotEntries
	}
	if p.Bytes == 0 {
		p.Bytes = snapshotBytes
	}
	if p.Trailing == 0 {
		p.Trailing = trailingLogs
	}
	return p
}

// volume counts the log bytes written since the last snapshot. The library
// counts entries only, and entries differ in size by two orders of magnitude.
type volume struct {
	limit uint64
	bytes atomic.Uint64
	full  chan struct{} // holds a value once the limit is reached; capacity 1
}

func (v *volume) wrote(entries []*raft.Log) {
	size := uint64(0)
	for _, e := range entries {
		size += uint64(len(e.Data))
	}
	if v.bytes.Add(size) < v.limit {
		return
	}
	select {
	case v.full <- struct{}{}:
	default: // it was told already
	}
}

func (v *volume) reset() { v.bytes.Store(0) }

// markLoop keeps the high-water mark close behind the applied index (at once
// after a membership change, else once per markInterval) and takes the
// snapshots that are due by time or by bytes.
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
		case <-n.volume.full:
			n.snapshot()
			continue
		case <-tick.C:
		case <-n.remark:
			was := config
			if config = n.machine.current().Config; config == was {
				continue
			}
		}
		if err := n.flushMark(); err != nil {
			n.cfg.Logger.Warn("high-water mark not written", "code", cluster.ErrStoreFailed.Code, "error", err)
		}
	}
}

// flushMark is timed: a disk that hangs here hangs for the terms as well, and perhaps nothing is appended that would show it.
func (n *Node) flushMark() error {
	defer n.log.otherWrites.start(n.cfg.Now())()
	return n.store.high.flush()
}

// snapshot compacts what changed since the last one, however little (§179). The
// volume counts anew also when it fails, so that a failing disk is asked again
// after as many bytes and not at every write.
func (n *Node) snapshot() {
	n.volume.reset()
	if index := n.machine.current().Index; n.snapshotAt.Swap(index) == index {
		return
	}
	err := n.await(n.stop, func() error { return n.answer(n.raft.Snapshot()) })
	if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		n.cfg.Logger.Warn("snapshot not taken", "error", err)
	}
}
