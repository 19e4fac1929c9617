// A disk that hangs where nothing is appended: a follower that waits for it can neither vote nor append, and must end.

package raftnode

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// hangsAt blocks one kind of write until it is let go.
type hangsAt struct {
	name string
	let  chan struct{}
}

func (h hangsAt) meet(name string) {
	if h.name == name {
		<-h.let
	}
}

func (h hangsAt) below(c *Config) {
	c.WrapLog = func(s raft.LogStore) raft.LogStore { return hangingLog{s, h} }
	c.WrapSnapshots = func(s raft.SnapshotStore) raft.SnapshotStore { return hangingSnapshots{s, h} }
}

type hangingLog struct {
	raft.LogStore
	at hangsAt
}

func (l hangingLog) DeleteRange(low, high uint64) error {
	l.at.meet("delete")
	return l.LogStore.DeleteRange(low, high)
}

type hangingSnapshots struct {
	raft.SnapshotStore
	at hangsAt
}

func (s hangingSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, t raft.Transport) (raft.SnapshotSink, error) {
	s.at.meet("create")
	sink, err := s.SnapshotStore.Create(v, index, term, c, ci, t)
	return hangingSink{sink, s.at}, err
}

type hangingSink struct {
	raft.SnapshotSink
	at hangsAt
}

func (s hangingSink) Write(b []byte) (int, error) {
	s.at.meet("write")
	return s.SnapshotSink.Write(b)
}

func (s hangingSink) Close() error {
	s.at.meet("close")
	return s.SnapshotSink.Close()
}

func TestHungInstallationEnds(t *testing.T) {
	const limit = 2 * time.Second
	for _, where := range []string{"create", "write", "close", "delete", ""} {
		t.Run(where, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, f *fleet) {
				leader := f.leader()
				m := f.others(leader)[0]
				m.close()
				short := leader.node.raft.ReloadableConfig()
				short.TrailingLogs = 4 // fewer than the follower lacks
				require.NoError(t, leader.node.raft.ReloadConfig(short))
				fill(t, leader, 16, 4)
				require.NoError(t, leader.node.raft.Snapshot().Error())

				h := hangsAt{where, make(chan struct{})}
				defer close(h.let)
				n := m.start(h.below, func(c *Config) { c.StallLimit = limit })
				if where == "" {
					f.eventually(func() bool { return n.View().Index >= leader.node.View().Index })
					<-time.After(2 * limit)
					require.Empty(t, m.exits)
					return
				}
				select {
				case reason := <-m.exits:
					require.Contains(t, reason, ErrStoreStalled.Code)
				case <-time.After(3 * limit):
					require.Fail(t, "it waits for the disk, and nobody is told")
				}
			})
		})
	}
}

// TestSeveralOperations: a timer of operations that may be under way together shows the oldest.
func TestSeveralOperations(t *testing.T) {
	var s several
	now := time.Now()
	first := s.start(now)
	second := s.start(now.Add(time.Second))
	require.Equal(t, 3*time.Second, s.lasts(now.Add(3*time.Second)))
	first()
	require.Equal(t, 2*time.Second, s.lasts(now.Add(3*time.Second)))
	third := s.start(now.Add(2 * time.Second))
	second()
	require.Equal(t, time.Second, s.lasts(now.Add(3*time.Second)))
	third()
	require.Zero(t, s.lasts(now.Add(3*time.Second)))
}

// refusingStable refuses every write.
type refusingStable struct {
	raft.StableStore
	writes *int
}

func (s refusingStable) Set([]byte, []byte) error       { *s.writes++; return diskFailed }
func (s refusingStable) SetUint64([]byte, uint64) error { *s.writes++; return diskFailed }

// Who opens a store on a disk that refuses a term is told, or needs no write at all; nobody waits.
func TestStartOnADiskThatRefusesTerms(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		writes := 0
		refuse := func(c *Config) {
			c.WrapStable = func(s raft.StableStore) raft.StableStore { return refusingStable{s, &writes} }
		}
		open := func(m *member, with ...func(*Config)) (*Node, error) {
			cfg := m.config()
			for _, change := range append(with, refuse) {
				change(&cfg)
			}
			opened := make(chan *Node, 1)
			var err error
			go func() {
				var n *Node
				n, err = Open(cfg)
				opened <- n
			}()
			select {
			case n := <-opened:
				return n, err
			case <-time.After(patience):
				require.FailNow(t, "the start waits for the disk")
				return nil, nil
			}
		}
		_, err := open(f.add(), bootstrap)
		require.ErrorIs(t, err, cluster.ErrStoreFailed)
		require.Equal(t, 1, writes)

		m := f.add()
		n, err := open(m) // a new member writes none
		require.NoError(t, err)
		require.NoError(t, n.Close())
		m = f.add()
		m.start(bootstrap)
		f.leader(m)
		m.close()
		n, err = open(m)
		require.NoError(t, err)
		require.Equal(t, 1, writes, "the term was there")
		m.connect(false)
		require.NoError(t, n.Close())
	})
}
