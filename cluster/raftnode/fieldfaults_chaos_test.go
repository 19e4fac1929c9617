// The slow one of the field faults: thousands of entries, each durable.

//go:build chaos

package raftnode

import "testing"

// With entries that reach beyond the snapshot the library is stuck: the node
// ends, and its next start catches up.
func TestFieldFaultReplicationSnapshotBeyond(t *testing.T) {
	t.Run("FB-019", func(t *testing.T) { divergedTail(t, 2*trailingLogs) })
}
