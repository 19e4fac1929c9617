// Disks that fail, fill up, are slow or hang: who leads, what is acknowledged, and what does not loop.

package raftnode

import (
	"context"
	"errors"
	"io/fs"
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

// badDisk is a log store that takes time for each write, or refuses it.
type badDisk struct {
	raft.LogStore
	delay  atomic.Int64 // nanoseconds for each write
	refuse atomic.Pointer[error]
	hits   atomic.Int64 // writes that were delayed or refused
}

func (d *badDisk) StoreLogs(entries []*raft.Log) error {
	if err := d.refuse.Load(); err != nil {
		d.hits.Add(1)
		return *err
	}
	if wait := time.Duration(d.delay.Load()); wait > 0 {
		d.hits.Add(1)
		<-time.After(wait)
	}
	return d.LogStore.StoreLogs(entries)
}

func (d *badDisk) below(c *Config) {
	c.WrapLog = func(s raft.LogStore) raft.LogStore { d.LogStore = s; return d }
}

func (d *badDisk) fail(err error) { d.refuse.Store(&err) }
func (d *badDisk) heal()          { d.refuse.Store(nil); d.delay.Store(0) }

// hangOnce has one write of the leader hang for twice as long as closing waits.
func (d *badDisk) hangOnce(t *testing.T, leader *Node) {
	t.Helper()
	d.delay.Store(int64(2 * closeBound))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := leader.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
	require.True(t, cluster.OutcomeUnknown(err), "%v", err)
	d.heal()
}

var (
	diskFull   = &fs.PathError{Op: "write", Path: storeFile, Err: syscall.ENOSPC}
	diskFailed = &fs.PathError{Op: "write", Path: storeFile, Err: syscall.EIO}
)

// withDisks is a fleet of three voters, each on a disk of its own.
func withDisks(t *testing.T, run func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger), change ...func(*Config)) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		disks, l := map[fsm.NodeID]*badDisk{}, &ledger{hashes: map[uint64][32]byte{}}
		for range 3 {
			m := f.add()
			disks[m.id] = &badDisk{}
			with := append([]func(*Config){disks[m.id].below, l.watch}, change...)
			if len(f.nodes) == 1 {
				with = append(with, bootstrap)
			}
			m.start(with...)
			if leader := f.leader(); leader != m {
				f.admit(leader, m)
				f.promote(leader, m)
			}
		}
		run(t, f, disks, l)
	})
}

// work proposes one change after the other for so long and returns how many were acknowledged. A refused one is asked again.
func (f *fleet) work(during time.Duration, among ...*member) (acknowledged int) {
	f.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); {
		m := f.leader(among...)
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		_, err := m.node.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{
			ExpectedEpoch: m.node.View().MaintenanceEpoch, State: fsm.Maintenance(1 + acknowledged%2),
		}})
		cancel()
		if err == nil {
			acknowledged++
		}
		<-time.After(100 * time.Millisecond)
	}
	return acknowledged
}

// ledger compares the hashes of the states of all nodes, entry by entry, over their restarts.
type ledger struct {
	mu       sync.Mutex
	hashes   map[uint64][32]byte
	compared int
	differ   []uint64
}

func (l *ledger) watch(c *Config) {
	c.Applied = func(index uint64, hash [32]byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if other, ok := l.hashes[index]; !ok {
			l.hashes[index] = hash
		} else if l.compared++; other != hash {
			l.differ = append(l.differ, index)
		}
	}
}

// equal waits until every running node has applied the same entries, and requires that their states never differed.
func (l *ledger) equal(f *fleet) { l.equalOn(f, f.nodes...) }

// equalOn is equal of some of the nodes, one of which leads.
func (l *ledger) equalOn(f *fleet, nodes ...*member) {
	f.t.Helper()
	last := f.leader(nodes...).node.View().Index
	f.eventually(func() bool {
		for _, m := range nodes {
			if m.node != nil && m.node.View().Index < last {
				return false
			}
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotZero(f.t, l.compared)
	require.Empty(f.t, l.differ, "entries after which the states differ")
}

func TestSlowFollowerDisk(t *testing.T) { slowFollower(t, 400*time.Millisecond) }

// slowFollower has each write of one follower last so long, which may be far above the election timeout.
func slowFollower(t *testing.T, each time.Duration) {
	t.Helper()
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		slow := f.others(leader)[0]
		term := leader.node.View().RaftTerm
		disks[slow.id].delay.Store(int64(each))
		require.Greater(t, f.work(24*each), int(24*each/(150*time.Millisecond)), "the majority does not wait for it")
		require.Greater(t, disks[slow.id].hits.Load(), int64(8))
		require.Same(t, leader, f.leader())
		require.Equal(t, term, leader.node.View().RaftTerm)
		disks[slow.id].heal()
		l.equal(f)
		require.Equal(t, term, leader.node.View().RaftTerm, "nor when it is well again")
	})
}

func TestSlowLeaderDisk(t *testing.T) { slowLeader(t, 400*time.Millisecond) }

// slowLeader has each write of the leader last so long. Slow is not hung: it goes on leading, and nobody stands against it.
func slowLeader(t *testing.T, each time.Duration) {
	t.Helper()
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		term := leader.node.View().RaftTerm
		disks[leader.id].delay.Store(int64(each))
		require.Greater(t, f.work(20*each), 10)
		require.Greater(t, disks[leader.id].hits.Load(), int64(8))
		require.Same(t, leader, f.leader())
		require.Equal(t, term, leader.node.View().RaftTerm)
		require.Empty(t, leader.exits)
		disks[leader.id].heal()
		l.equal(f)
	})
}

func TestStorageStallMovesLeadershipWithinTheBound(t *testing.T) { hungLeader(t, 2*time.Second) }

// hungLeader has the leader's disk hang for far longer than the watchdog's limit.
func hungLeader(t *testing.T, limit time.Duration) {
	t.Helper()
	const hang = 15 * time.Second
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		term := leader.node.View().RaftTerm
		disks[leader.id].delay.Store(int64(hang))
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := leader.node.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.True(t, cluster.OutcomeUnknown(err), "%v", err)
		require.Contains(t, <-leader.exits, ErrStoreStalled.Code)
		f.leader(f.others(leader)...)
		// Two looks above the limit, then one election.
		require.Less(t, time.Since(begin), limit+limit/10+3*fast.ElectionTimeout)
		require.Greater(t, f.work(5*time.Second, f.others(leader)...), 30)
		require.LessOrEqual(t, f.leader(f.others(leader)...).node.View().RaftTerm, term+3, "one election, whose vote may split")
		l.equalOn(f, f.others(leader)...)
		require.Equal(t, int64(1), disks[leader.id].hits.Load())
		disks[leader.id].heal()
		<-time.After(hang) // a write that hangs for ever would hold its goroutine for ever
	}, func(c *Config) { c.StallLimit = limit })
}

// Who is asked to hand over while his disk hangs refuses: the library would take
// the request up after the write, and never answer it when it stops before.
func TestHandoverBehindAHungDisk(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, _ *ledger) {
		leader := f.leader()
		disks[leader.id].hangOnce(t, leader.node)
		<-time.After(2 * fast.HeartbeatTimeout)
		require.ErrorIs(t, leader.node.StepDown(t.Context(), "it is asked"), ErrStoreStalled)
		<-time.After(2 * closeBound)
	}, func(c *Config) { c.StallLimit = time.Hour })
}

// Who asks just as a disk begins to hang has an end of it once the hang is over,
// although the node was closed meanwhile: the library forgets what it has queued.
func TestAskedAsADiskBeginsToHang(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Node) error{
		"hand over": func(ctx context.Context, n *Node) error { return n.StepDown(ctx, "it is asked") },
		"prove it":  func(ctx context.Context, n *Node) error { _, err := n.LinearizableView(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 { // the library draws whether it takes up a request or its end first
				withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, _ *ledger) {
					briefly := func() context.Context {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						t.Cleanup(cancel)
						return ctx
					}
					leader := f.leader()
					disks[leader.id].hangOnce(t, leader.node)
					require.Error(t, ask(briefly(), leader.node))
					leader.connect(false)
					require.ErrorIs(t, leader.node.Close(), ErrStoreStalled)
					leader.node, leader.raft = nil, nil
					<-time.After(2 * closeBound) // whoever still waits then keeps the test from ending
				}, func(c *Config) { c.StallLimit = time.Hour })
			}
		})
	}
}

// A node that was closed while its disk hung lets go of its files when the disk is
// back: its next process opens them.
func TestClosedWhileItsDiskHungLetsGo(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		disks[leader.id].hangOnce(t, leader.node)
		leader.connect(false)
		require.ErrorIs(t, leader.node.Close(), ErrStoreStalled)
		leader.node, leader.raft = nil, nil
		<-time.After(2 * closeBound)
		disks[leader.id] = &badDisk{}
		leader.start(disks[leader.id].below, l.watch)
		require.NotZero(t, f.work(time.Second))
		l.equal(f)
	}, func(c *Config) { c.StallLimit = time.Hour })
}

// An error of the disk is the end of this process: what was to be written may be
// there or not, and a second try could be answered with a success that is none.
func TestFailedWriteEnds(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, _ *ledger) {
		leader := f.leader()
		disks[leader.id].fail(diskFailed)
		_, err := leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.True(t, cluster.OutcomeUnknown(err), "%v", err)
		require.Contains(t, <-leader.exits, cluster.ErrStoreFailed.Code)
		disks[leader.id].heal() // the next write would succeed; it is never made
		f.leader(f.others(leader)...)
		require.Greater(t, f.work(3*time.Second, f.others(leader)...), 15)
		require.ErrorIs(t, leader.node.Failure(), cluster.ErrStoreFailed)
		require.ErrorIs(t, leader.node.log.StoreLogs([]*raft.Log{{Index: 1}}), errStoreDead)
		require.Equal(t, int64(1), disks[leader.id].hits.Load())
		require.True(t, leader.node.Confirmed().IsZero())
	})
}

func TestFailedFollowerWriteEnds(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, _ *ledger) {
		leader := f.leader()
		m := f.others(leader)[0]
		disks[m.id].fail(diskFailed)
		term := leader.node.View().RaftTerm
		require.Greater(t, f.work(3*time.Second), 15)
		require.Contains(t, <-m.exits, cluster.ErrStoreFailed.Code)
		require.Equal(t, int64(1), disks[m.id].hits.Load())
		require.Same(t, leader, f.leader())
		require.Equal(t, term, leader.node.View().RaftTerm)
	})
}

// A full disk can be emptied: the node stays, another one leads, and it goes on where it was.
func TestStorageStallFullDisk(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, disks map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		disks[leader.id].fail(diskFull)
		_, err := leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}})
		require.Error(t, err)
		f.leader(f.others(leader)...)
		term := f.leader(f.others(leader)...).node.View().RaftTerm
		require.Greater(t, f.work(10*time.Second, f.others(leader)...), 50)
		require.LessOrEqual(t, f.leader(f.others(leader)...).node.View().RaftTerm, term+1, "it does not stand again and again")
		require.Greater(t, disks[leader.id].hits.Load(), int64(5))
		require.Empty(t, leader.exits)
		require.NoError(t, leader.node.Failure())
		disks[leader.id].heal()
		l.equal(f)
	})
}

func TestSpaceMayReturn(t *testing.T) {
	require.True(t, spaceMayReturn(diskFull))
	require.True(t, spaceMayReturn(errors.Join(&fs.PathError{Op: "write", Err: syscall.EDQUOT})))
	require.False(t, spaceMayReturn(diskFailed))
	require.False(t, spaceMayReturn(syscall.ENOSPC), "bolt's sync answers so")
	require.False(t, spaceMayReturn(&fs.PathError{Op: "sync", Err: syscall.ENOSPC}))
}

// A follower that cannot store a snapshot is sent the next one later and later,
// nothing of the attempts stays on its disk, and it catches up once there is room.
func TestSnapshotsDoNotLoop(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, _ map[fsm.NodeID]*badDisk, l *ledger) {
		leader := f.leader()
		m := f.others(leader)[0]
		m.close()
		short := leader.node.raft.ReloadableConfig()
		short.TrailingLogs = 16 // fewer than the follower lacks
		require.NoError(t, leader.node.raft.ReloadConfig(short))
		fill(t, leader, 32, 4)
		require.NoError(t, leader.node.raft.Snapshot().Error())
		term := leader.node.View().RaftTerm

		dir := filepath.Join(m.dir, "raft", snapshotsDir)
		m.cfg = m.config()
		l.watch(&m.cfg)
		n, err := Open(m.cfg)
		require.NoError(t, err)
		m.node = n
		var attempts atomic.Int64
		var room atomic.Bool
		n.store.snapshots.sealing = func() error {
			attempts.Add(1)
			if room.Load() {
				return nil
			}
			return diskFull
		}
		m.connect(true) // only now is it sent anything
		<-time.After(20 * time.Second)
		require.Greater(t, attempts.Load(), int64(1))
		require.Less(t, attempts.Load(), int64(20), "one a second at most")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.LessOrEqual(t, len(left), 1, "what a failed attempt wrote is removed")
		require.Same(t, leader, f.leader())
		require.Equal(t, term, leader.node.View().RaftTerm)
		require.Empty(t, m.exits)

		before := attempts.Load()
		room.Store(true)
		f.eventually(func() bool { return n.View().Index >= leader.node.View().Index })
		<-time.After(20 * time.Second)
		require.LessOrEqual(t, attempts.Load()-before, int64(2), "it is installed once")
		l.equal(f)
	})
}
