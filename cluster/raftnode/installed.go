// What becomes of the log when a snapshot is installed over it.

package raftnode

import (
	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
)

// installedLog is the log as the library sees it. By default an installed
// snapshot leaves the entries behind it in the log, also those that were never
// committed: a node that leads later would send them to a follower that lags so
// far, as if they were.
type installedLog struct {
	*logStore
	newest func() (*raft.SnapshotMeta, error) // term and index; nil when there is none
	stuck  func(*cluster.Error)
}

// IsMonotonic makes the library drop the whole log once it has installed a
// snapshot (raft.MonotonicLogStore).
func (installedLog) IsMonotonic() bool { return true }

// DeleteRange implements raft.LogStore. When entries that were never committed
// reached beyond the snapshot, the library goes on believing in the last one: it
// refuses each next append for it and is sent the snapshot again, for ever
// (hashicorp/raft#697). A new start reads the log anew and has none of them.
func (l installedLog) DeleteRange(low, high uint64) error {
	if high == 0 {
		return nil // the library drops an empty log
	}
	meta, err := l.newest()
	if err != nil {
		return err
	}
	var last raft.Log
	beyond := false
	if meta != nil && low <= meta.Index && high >= meta.Index {
		if err := l.logStore.GetLog(high, &last); err != nil {
			return err
		}
		beyond = high > meta.Index || last.Term != meta.Term
	}
	if err := l.logStore.DeleteRange(low, high); err != nil {
		return err
	}
	if beyond {
		l.stuck(cluster.ErrStoreFailed.Wrap(nil,
			"the log reached entry %d of term %d, none of it committed beyond the installed snapshot of entry %d; a new start goes on from there", high, last.Term, meta.Index))
	}
	return nil
}

// installed is the node's log for the library.
func (n *Node) installed() installedLog {
	return installedLog{
		logStore: n.log,
		newest:   n.store.snapshots.newest,
		stuck: func(e *cluster.Error) {
			n.fail(e)
			n.cfg.Exit(ExitStorage, e.Error())
		},
	}
}
