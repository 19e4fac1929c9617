// Faults that fleets like this met in the field, by kind; testkit/FIELD_FAULTS.md lists them all.

package raftnode

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// A hand-over never ends at a node without a vote: with nobody else to lead, the
// leader stays what it is, in its term.
func TestFieldFaultLeaderTransfer(t *testing.T) {
	t.Run("FB-002", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, f *fleet) {
			leader := f.leader()
			learner := f.add()
			learner.start()
			f.admit(leader, learner)
			before, _ := leader.node.Leadership()
			require.NoError(t, leader.node.StepDown(t.Context(), "the test asks"))
			after, leads := leader.node.Leadership()
			require.True(t, leads)
			require.Equal(t, before, after)
			require.Equal(t, raft.Follower, learner.node.raft.State())
			require.ErrorIs(t, learner.node.StepDown(t.Context(), "it never led"), cluster.ErrNotLeader)
		})
	})
}

// flaky is a log store whose writes fail while it is told to.
type flaky struct {
	raft.LogStore
	broken atomic.Bool
	failed atomic.Uint64
}

// errFlaky is what may pass by itself; after any other failed write the node ends.
var errFlaky = &fs.PathError{Op: "write", Path: storeFile, Err: syscall.ENOSPC}

func (s *flaky) StoreLogs(entries []*raft.Log) error {
	if s.broken.Load() {
		s.failed.Add(1)
		return errFlaky
	}
	return s.LogStore.StoreLogs(entries)
}

func TestFieldFaultReplicationSnapshot(t *testing.T) {
	// With a few such entries none of them stays behind the snapshot, where this
	// node could send it to others once it leads.
	t.Run("FB-019", func(t *testing.T) { divergedTail(t, 50) })

	// A follower's disk is full for three seconds under load. When it works again
	// the follower is served at once, by the same leader.
	t.Run("FB-020", func(t *testing.T) {
		bubble(t, 2, func(t *testing.T, f *fleet) {
			leader := f.leader()
			m := f.add()
			disk := &flaky{}
			m.start(func(c *Config) { c.WrapLog = func(s raft.LogStore) raft.LogStore { disk.LogStore = s; return disk } })
			f.admit(leader, m)
			f.promote(leader, m)
			disk.broken.Store(true)
			due := time.NewTicker(50 * time.Millisecond)
			defer due.Stop()
			for begin := time.Now(); time.Since(begin) < 3*time.Second; <-due.C {
				fill(t, leader, 1, 1)
			}
			require.NotZero(t, disk.failed.Load())
			disk.broken.Store(false)
			begin := time.Now()
			f.eventually(func() bool { return m.node.View().Index >= leader.node.View().Index })
			require.Less(t, time.Since(begin), 10*time.Second)
			_, leads := leader.node.Leadership()
			require.True(t, leads)
		})
	})
}

// After churn most of the file is free pages. No commit writes their list, and a
// small entry costs a few pages.
func TestFieldFaultStorageFiles(t *testing.T) {
	t.Run("FB-015", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), storeFile)
		bolt, err := openBolt(path, false)
		require.NoError(t, err)
		defer bolt.Close()
		const batches, each = 40, 64
		entry := func(i int, size int) *raft.Log { return &raft.Log{Index: uint64(i), Term: 1, Data: make([]byte, size)} }
		for b := range batches {
			var entries []*raft.Log
			for i := range each {
				entries = append(entries, entry(1+b*each+i, 4<<10))
			}
			require.NoError(t, bolt.StoreLogs(entries))
		}
		require.NoError(t, bolt.DeleteRange(1, batches*each-10))
		before := bolt.Stats()
		require.Greater(t, before.FreePageN+before.PendingPageN, batches*each/2, "the file is mostly free")
		require.NoError(t, bolt.StoreLog(entry(batches*each+1, 100)))
		after := bolt.Stats()
		require.LessOrEqual(t, after.TxStats.GetPageAlloc()-before.TxStats.GetPageAlloc(), int64(64<<10))
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		const freeListAt = 16 + 16 + 16 // behind the headers of page, meta and root bucket
		for _, page := range []int{0, os.Getpagesize()} {
			require.Equal(t, uint64(math.MaxUint64), binary.LittleEndian.Uint64(file[page+freeListAt:]), "the list of free pages is on the disk")
		}
	})
}

// divergedTail isolates a leader, which keeps so many entries that were never
// committed, and lets the others go on until only a snapshot helps it.
func divergedTail(t *testing.T, uncommitted int) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		stale := f.leader()
		rest := f.others(stale)
		for _, o := range rest {
			stale.link(o, false)
		}
		from := stale.node.raft.LastIndex()
		for range uncommitted { // nobody waits for them
			stale.node.raft.Apply(proposalBytes(t, stale), 0)
		}
		f.eventually(func() bool {
			return stale.node.raft.LastIndex() >= from+uint64(uncommitted) && stale.node.raft.State() != raft.Leader
		})
		leader := f.leader(rest...)
		fill(t, leader, 128, trailingLogs/128+2)
		require.NoError(t, leader.node.raft.Snapshot().Error())
		for _, o := range rest {
			stale.link(o, true)
		}
		if uncommitted > trailingLogs {
			f.eventually(func() bool { return len(stale.exits) > 0 })
			require.Contains(t, <-stale.exits, cluster.ErrStoreFailed.Code)
			stale.close()
			stale.start()
		}
		f.eventually(func() bool { return stale.node.View().Index >= leader.node.View().Index })
		fill(t, f.leader(), 1, 1)
		f.eventually(func() bool { return stale.node.View().Index >= f.leader().node.View().Index })
		first, err := stale.node.store.bolt.FirstIndex()
		require.NoError(t, err)
		require.Greater(t, first, from+uint64(min(uncommitted, trailingLogs)), "an entry that was never committed is still in the log")
		require.LessOrEqual(t, len(snapshots(t, stale)), 2)
	})
}

// fill writes entries: proposals that are refused are entries too.
func fill(t *testing.T, leader *member, proposers, each int) {
	t.Helper()
	var wait sync.WaitGroup
	for range proposers {
		wait.Go(func() {
			for range each {
				_, _ = leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)})
			}
		})
	}
	wait.Wait()
}

// proposalBytes is a proposal as the log holds it.
func proposalBytes(t *testing.T, m *member) []byte {
	t.Helper()
	b, err := fsm.EncodeProposal(fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
	require.NoError(t, err)
	return b
}
