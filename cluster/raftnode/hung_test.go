// A state machine that hangs: leadership goes to another voter, or the process ends; a pause is no hang.

package raftnode

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// latch holds a node's state machine up while it is shut.
type latch struct {
	shut atomic.Bool
	let  chan struct{}
}

func newLatch() *latch { return &latch{let: make(chan struct{})} }

func (l *latch) hold(c *Config) {
	c.StallLimit = 300 * time.Millisecond
	c.beforeApply = func() {
		if l.shut.Load() {
			<-l.let
		}
	}
}

func (l *latch) open() {
	l.shut.Store(false)
	close(l.let)
}

// hang has the leader apply an entry that never ends.
func (l *latch) hang(t *testing.T, n *Node, c fsm.Command) {
	t.Helper()
	l.shut.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := n.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.True(t, cluster.OutcomeUnknown(err), "%v", err)
}

func TestHungApplyHandsLeadershipOver(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		l := newLatch()
		leader := f.add()
		leader.start(bootstrap, l.hold)
		f.leader()
		f.grow(3)
		begin := time.Now()
		l.hang(t, leader.node, exclusive(leader))
		next := f.leader(f.others(leader)...)
		// The bound: two looks above the limit, one poll, one hand-over, one election.
		require.Less(t, time.Since(begin), 330*time.Millisecond+leadershipPoll+3*fast.ElectionTimeout)
		require.ErrorIs(t, leader.node.Failure(), ErrApplyStalled)
		require.True(t, leader.node.Confirmed().IsZero())
		require.NotEqual(t, raft.Leader, leader.node.raft.State())
		require.Empty(t, leader.exits, "it could hand over, so it stays as a follower")
		f.propose(next.node, fsm.SetMaintenance{State: fsm.ReadOnly})

		// It votes and stores on, but does not keep a leadership it is given.
		err := next.node.StepDown(t.Context(), "the test")
		require.NoError(t, err)
		f.eventually(func() bool { return f.leader() != leader })
		l.open()
	})
}

func TestHungApplyWithoutAnHeirEnds(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		l := newLatch()
		m := f.add()
		m.start(bootstrap, l.hold)
		f.leader()
		begin := time.Now()
		l.hang(t, m.node, exclusive(m))
		require.Contains(t, <-m.exits, ErrApplyStalled.Code)
		require.Less(t, time.Since(begin), 330*time.Millisecond+4*fast.ElectionTimeout)
		l.open()
	})
}

// The library's own loop blocks once it cannot hand the state machine any more
// entries; then nothing but the end of the process ends the leadership.
func TestHungApplyThatBlocksTheLibraryEnds(t *testing.T) {
	bubble(t, 0, func(t *testing.T, f *fleet) {
		l := newLatch()
		leader := f.add()
		leader.start(bootstrap, l.hold, func(c *Config) { c.StallLimit = 5 * time.Second })
		f.leader()
		f.grow(3)
		l.shut.Store(true)
		data, err := fsm.EncodeProposal(fsm.Proposal{Request: cluster.NewRequestID(), Command: exclusive(leader)})
		require.NoError(t, err)
		blocked := func() bool { // one more entry is not even stored
			last := leader.node.raft.LastIndex()
			leader.node.raft.Apply(data, time.Millisecond)
			for range 50 {
				if leader.node.raft.LastIndex() > last {
					return false
				}
				<-time.After(time.Millisecond)
			}
			return true
		}
		require.Eventually(t, blocked, patience, time.Millisecond)
		require.Equal(t, raft.Leader, leader.node.raft.State())
		require.Contains(t, <-leader.exits, ErrApplyStalled.Code)
		next := f.leader(f.others(leader)...)
		require.NotEqual(t, leader.id, next.id)
		l.open()
	})
}

// TestPauseIsNoStall: what a stopped process did not see does not count.
func TestPauseIsNoStall(t *testing.T) {
	const gap = time.Second
	var op timer
	s := stall{timer: &op}
	now := time.Now()
	require.Zero(t, s.look(now, gap))
	op.start(now)
	now = now.Add(time.Hour)
	require.Equal(t, gap, s.look(now, gap), "an hour asleep")
	for range 3 {
		now = now.Add(gap / 2)
		s.look(now, gap)
	}
	require.Equal(t, gap+3*gap/2, s.look(now, gap), "seen under way all the time")
	op.start(now)
	require.Zero(t, s.look(now, gap), "another operation")
	op.stop()
	require.Zero(t, s.look(now.Add(gap), gap))
}
