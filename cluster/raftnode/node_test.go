// The engine as a fleet: election, proposals from anywhere, confirmation, restart.

package raftnode

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestThreeNodeElects(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		for _, m := range f.nodes {
			f.eventually(func() bool {
				v := m.node.View()
				return v.KnownLeader == leader.id && len(v.Members) == 3 && v.ClusterID == f.cluster && len(m.node.Suffrage().Voters) == 3
			})
		}
		l, _ := leader.node.Leadership()
		require.Equal(t, leader.node.View().RaftTerm, l.Term)

		leader.close()
		next := f.leader()
		require.NotEqual(t, leader.id, next.id)
		l2, _ := next.node.Leadership()
		require.Greater(t, l2.Term, l.Term)
	})
}

func TestEveryStartCommitsItsIncarnation(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		old := m.cfg.Self.Incarnation
		m.close()
		m.start()
		require.NotEqual(t, old, m.cfg.Self.Incarnation)
		f.eventually(func() bool {
			x, ok := leader.node.View().Member(m.id)
			return ok && x.Incarnation == m.cfg.Self.Incarnation
		})
	})
}

func TestDurableRestart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		epoch := f.propose(leader.node, fsm.BumpEpoch{
			Term: leadership(t, leader), ExpectedEpoch: leader.node.View().LeaderEpoch.Epoch,
			Node: leader.id, Incarnation: leader.cfg.Self.Incarnation,
		}).Epoch
		require.NotZero(t, epoch)
		for _, m := range f.nodes {
			m.close()
		}
		for _, m := range f.nodes {
			n := m.start()
			// Known at once, before any leader says what is committed: without its
			// members a node could neither dial nor admit anyone.
			require.Len(t, n.View().Members, 3)
			require.Equal(t, f.cluster, n.View().ClusterID)
		}
		leader = f.leader()
		require.Equal(t, epoch, leader.node.View().Epoch)
		require.Equal(t, fsm.Epoch(epoch), leader.node.View().LeaderEpoch.Epoch)
	})
}

func leadership(t *testing.T, m *member) uint64 {
	t.Helper()
	l, leads := m.node.Leadership()
	require.True(t, leads)
	return l.Term
}

func TestRaftDirContents(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		m.start(bootstrap)
		f.leader()
		require.NoError(t, m.node.raft.Snapshot().Error())
		entries, err := os.ReadDir(m.cfg.Dir)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		require.Equal(t, []string{"raft.db", "snapshots"}, names)
	})
}

func TestConfirmationFollowsTheMajority(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		for _, m := range f.nodes {
			f.eventually(func() bool { return time.Since(m.node.Confirmed()) < cluster.ConfirmationBound })
		}
		// Reports reach the leader, its own included.
		f.eventually(func() bool { return len(leader.node.Reports()) == 3 })

		cut := time.Now()
		leader.connect(false)
		f.leader(f.others(leader)...)
		// The isolated leader proves nothing that is newer than the cut.
		require.False(t, leader.node.Confirmed().After(cut))
		f.eventually(func() bool { _, leads := leader.node.Leadership(); return !leads })
		require.False(t, leader.node.Confirmed().After(cut))
		require.Nil(t, leader.node.Reports())
		require.Nil(t, leader.node.Peers())
	})
}

func TestFollowerCutFromItsLeaderGoesStale(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		f.eventually(func() bool { return time.Since(m.node.Confirmed()) < cluster.ConfirmationBound })
		f.board.mu.Lock()
		f.board.cut[[2]fsm.NodeID{m.id, leader.id}] = true
		f.board.mu.Unlock()
		cut := time.Now()
		f.eventually(func() bool { return time.Since(cut) > cluster.ConfirmationBound })
		require.False(t, m.node.Confirmed().After(cut))
	})
}

func TestSingleVoterConfirmsItself(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		f.add().start(bootstrap)
		leader := f.leader()
		before := time.Now()
		require.False(t, leader.node.Confirmed().Before(before))
	})
}

func TestLinearizableView(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		commit := f.propose(leader.node, fsm.SetMaintenance{State: fsm.NoScheduling})
		v, err := leader.node.LinearizableView(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, v.Index, commit.Index)
		_, err = f.others(leader)[0].node.LinearizableView(t.Context())
		require.Equal(t, cluster.NotLeader, cluster.KindOf(err))

		for _, m := range f.others(leader) {
			m.close()
		}
		_, err = leader.node.LinearizableView(t.Context())
		require.Error(t, err)
		require.True(t, cluster.KindOf(err) == cluster.NoQuorum || cluster.KindOf(err) == cluster.NotLeader, "%v", err)
	})
}

func TestNeverFoundsAClusterByItself(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		m := f.add()
		n := m.start()
		require.True(t, n.Fresh())
		waited := time.Now()
		f.eventually(func() bool { return time.Since(waited) > 4*fast.ElectionTimeout })
		require.True(t, n.Fresh())
		require.Zero(t, n.View().RaftTerm)
		_, leads := n.Leadership()
		require.False(t, leads)
	})
}

// After a crash, without any orderly end, the view is at most a moment old.
func TestViewSurvivesACrash(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		m := f.others(f.leader())[0]
		var high mark
		f.eventually(func() bool {
			_, err := readJSON(filepath.Join(m.cfg.IdentityDir, markFile), &high)
			// The mark also counts configuration entries, of which a view knows nothing.
			return err == nil && high.Applied >= m.node.View().Index
		})
		crashed := filepath.Join(f.dir, "crashed")
		require.NoError(t, os.CopyFS(crashed, os.DirFS(m.dir)))
		view := m.node.View().View
		m.close()
		m.dir = crashed
		require.Equal(t, view, m.start().View().View)
	})
}

// The committed configuration is what a majority stored, known again at once after
// a restart; the log may hold a change that never was.
func TestCommittedSuffrageIsNotTheLogs(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		three := leader.node.Suffrage().Voters
		next := f.add()
		next.start()
		f.propose(leader.node, fsm.AddLearner{ExpectedConfig: leader.node.View().Config, Member: next.describe(next.cfg.Self.Incarnation)})
		leader.connect(false)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, leader.node.AddNonvoter(ctx, next.id))
		require.True(t, leader.node.Suffrage().Contains(next.id))
		require.False(t, leader.node.CommittedSuffrage().Contains(next.id))
		require.ElementsMatch(t, three, leader.node.CommittedSuffrage().Voters)

		leader.close()
		n := leader.start()
		require.True(t, n.Suffrage().Contains(next.id))
		require.ElementsMatch(t, three, n.CommittedSuffrage().Voters)
		require.False(t, n.CommittedSuffrage().Contains(next.id))
	})
}

// A follower that applies late announces itself once, not until its view has caught up.
func TestAnnouncedOnceThoughAppliedLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		m := f.others(leader)[0]
		m.close()
		let := make(chan struct{})
		m.start(func(c *Config) { c.beforeApply = func() { <-let } })
		announced := func() bool {
			x, _ := leader.node.View().Member(m.id)
			return x.Incarnation == m.cfg.Self.Incarnation
		}
		f.eventually(announced)
		last := leader.node.LastIndex()
		begin := time.Now()
		f.eventually(func() bool { return time.Since(begin) > 2*time.Second })
		require.Equal(t, last, leader.node.LastIndex())
		close(let)
		f.eventually(func() bool { return m.node.View().Index >= last })
	})
}
