// Snapshots: restart with an equal state, a bounded log, membership after an installed snapshot.

package raftnode

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/fsm"
)

// What a daemon is configured with by default is what the engine does by itself.
func TestDefaultsAreThoseOfTheConfiguration(t *testing.T) {
	c := config.Default().Cluster
	require.Equal(t, SnapshotPolicy{}.withDefaults(), SnapshotPolicy{Entries: uint64(c.Snapshots.Entries), Bytes: uint64(c.Snapshots.Bytes), Trailing: trailingLogs})
	heartbeat, election, lease := c.Timers.Scaled()
	timers := DefaultTimers()
	require.Equal(t, timers, Timers{HeartbeatTimeout: heartbeat, ElectionTimeout: election, LeaderLeaseTimeout: lease, CommitTimeout: timers.CommitTimeout})
}

func TestRestartFromSnapshot(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		m.start(bootstrap)
		f.leader()
		f.propose(m.node, exclusive(m))
		require.NoError(t, m.node.raft.Snapshot().Error())
		f.propose(m.node, fsm.SetMaintenance{State: fsm.NoScheduling})
		stopped := m.node
		m.close()

		cfg := m.config()
		require.NoError(t, cfg.setDefaults())
		st, err := openStore(cfg)
		require.NoError(t, err)
		require.NoError(t, st.close())
		require.NotNil(t, st.found.snapshot)
		require.Equal(t, stopped.machine.state.Hash(), st.found.state.Hash())

		m.start()
		require.Equal(t, stopped.machine.current().Epoch, m.node.View().Epoch)
		f.leader()
		require.Equal(t, fsm.NoScheduling, m.node.View().Maintenance)
	})
}

func TestLogBounded(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		m.start(bootstrap)
		f.leader()
		var proposers sync.WaitGroup
		for range 32 {
			proposers.Go(func() {
				for range 100 {
					// Rejected or not, each is an entry.
					_, _ = m.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
				}
			})
		}
		proposers.Wait()
		require.Greater(t, m.node.raft.LastIndex(), uint64(trailingLogs+2*snapshotEntries))
		f.eventually(func() bool {
			first, err := m.node.store.bolt.FirstIndex()
			return err == nil && m.node.raft.LastIndex()-first < trailingLogs+snapshotEntries
		})
	})
}

func TestSnapshotTriggers(t *testing.T) {
	const many, each = 40, 100 // entries, and below the bytes of one
	for name, c := range map[string]struct {
		policy SnapshotPolicy
		taken  bool
	}{
		"by entries": {SnapshotPolicy{Entries: many / 2, Bytes: 1 << 30}, true},
		"by bytes":   {SnapshotPolicy{Entries: 1 << 20, Bytes: many / 2 * each}, true},
		"by neither": {SnapshotPolicy{Entries: 1 << 20, Bytes: 1 << 30}, false},
		"by default": {SnapshotPolicy{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, f *fleet) {
				m := f.add()
				m.start(bootstrap, func(cfg *Config) { cfg.Snapshots = c.policy })
				f.leader()
				require.Empty(t, snapshots(t, m))
				for range many {
					_, _ = m.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(m)})
				}
				if c.taken {
					f.eventually(func() bool { return len(snapshots(t, m)) > 0 })
					require.Greater(t, snapshots(t, m)[0].Index, uint64(many/2))
					return
				}
				begin := time.Now()
				f.eventually(func() bool { return time.Since(begin) > 3*snapshotInterval })
				require.Empty(t, snapshots(t, m))
			})
		})
	}
}

func snapshots(t *testing.T, m *member) []*raft.SnapshotMeta {
	t.Helper()
	list, err := m.node.store.snapshots.List()
	require.NoError(t, err)
	return list
}

// A follower that was away so long that it needs a snapshot learns the
// configuration index from it, and can lead a membership change.
func TestInstalledSnapshotCarriesTheConfiguration(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		m.close()
		var proposers sync.WaitGroup
		for range 32 {
			proposers.Go(func() {
				for range 80 {
					_, _ = leader.node.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)})
				}
			})
		}
		proposers.Wait()
		require.NoError(t, leader.node.raft.Snapshot().Error())
		first, err := leader.node.store.bolt.FirstIndex()
		require.NoError(t, err)
		n := m.start()
		require.Less(t, n.raft.LastIndex(), first, "it needs a snapshot")
		f.eventually(func() bool { return n.View().Index >= leader.node.View().Index })
		require.NotZero(t, n.machine.configuredAt())
		require.Equal(t, leader.node.machine.configuredAt(), n.machine.configuredAt())
		require.ElementsMatch(t, leader.node.Suffrage().Voters, n.CommittedSuffrage().Voters)
		require.Equal(t, leader.node.View().Epoch, n.View().Epoch)

		f.eventually(func() bool {
			if _, leads := n.Leadership(); leads {
				return true
			}
			_ = f.leader().node.StepDown(t.Context(), "the test wants the other one")
			return false
		})
		next := f.add()
		next.start()
		f.admit(m, next)
		require.Contains(t, n.Suffrage().Nonvoters, next.id)
	})
}

// An installed snapshot counts as applied once the state machine has it, and then all of it.
func TestInstalledSnapshotCountsOnceRestored(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		old := m.node.View().Index
		m.close()
		short := leader.node.raft.ReloadableConfig()
		short.TrailingLogs = 4 // fewer than the follower lacks
		require.NoError(t, leader.node.raft.ReloadConfig(short))
		fill(t, leader, 16, 4)
		next := f.add()
		f.propose(leader.node, fsm.AddLearner{ExpectedConfig: leader.node.View().Config, Member: next.describe(cluster.NewIncarnationID())})
		require.NoError(t, leader.node.AddNonvoter(t.Context(), next.id))
		require.NoError(t, leader.node.raft.Snapshot().Error())
		configured := leader.node.machine.configuredAt()
		require.Greater(t, configured, leader.node.View().Index, "the change of the membership is its last entry")

		held, let, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
		n := m.start(func(c *Config) {
			c.Applied = func(index uint64, _ [32]byte) {
				if index <= old {
					return
				}
				select {
				case held <- struct{}{}:
					<-let
				case <-free:
				}
			}
		})
		<-held
		<-time.After(2 * cluster.ConfirmationBound)
		passed, mark, confirmed, view := n.machine.passed.Load(), n.store.high.load().Applied, n.Confirmed(), n.View().Index
		let <- struct{}{}
		<-held // by the entry that announces its new incarnation
		restored := n.machine.passed.Load()
		close(free)
		let <- struct{}{}
		require.LessOrEqual(t, view, old)
		require.Less(t, passed, configured, "applied is what the state machine has")
		require.Less(t, mark, configured)
		require.Zero(t, confirmed, "its view is that of before")

		require.Equal(t, configured, restored, "its last entry is no command, and counts as well")
		f.eventually(func() bool { return n.View().Index == leader.node.View().Index })
		f.eventually(func() bool { return time.Since(n.Confirmed()) <= cluster.ConfirmationBound })
	})
}

// How much of the log an installed snapshot takes away is known also while the disk does not give its state.
func TestNewestSnapshotIsKnownWithoutItsState(t *testing.T) {
	bubble(t, 1, func(t *testing.T, f *fleet) {
		m := f.leader()
		for range 2 {
			fill(t, m, 1, 4)
			require.NoError(t, m.node.raft.Snapshot().Error())
		}
		want := snapshots(t, m)[0]
		state := filepath.Join(m.cfg.Dir, snapshotsDir, want.ID, stateFile)
		require.NoError(t, os.Remove(state))
		require.NoError(t, os.Mkdir(state, 0o700))
		_, err := m.node.store.snapshots.List()
		require.ErrorIs(t, err, syscall.EISDIR)
		got, err := m.node.installed().newest()
		require.NoError(t, err)
		require.Equal(t, &raft.SnapshotMeta{ID: want.ID, Term: want.Term, Index: want.Index}, got)
	})
}

func TestSnapshotThatCannotBeReadBack(t *testing.T) {
	state := fsm.NewState()
	b, err := state.EncodeSnapshot()
	require.NoError(t, err)
	require.NoError(t, encoded{bytes: b, hash: state.Hash()}.verify())
	require.Error(t, encoded{bytes: b[:len(b)-1], hash: state.Hash()}.verify())
	require.Error(t, encoded{bytes: b, hash: [32]byte{1}}.verify())
}
