// Election stability: a crash is followed by one early election, and nothing else by any.

package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// earlyBound bounds the time from a crash to the next leader's barrier: the oldest
// append, the rule's silence, its questions, one election.
const earlyBound = 350 * time.Millisecond

func TestElectionStabilityEarlyAfterACrash(t *testing.T) {
	wired(t, func(t *testing.T, w *wires) {
		learner := w.join()
		old, term := w.leader(), w.term()
		at := time.Now()
		w.crash(old)
		next := w.leader(w.others(old)...)
		require.Less(t, time.Since(at), earlyBound)
		require.Equal(t, term+1, w.term(), "one election")
		require.NotEqual(t, learner, next)
		w.kill(old)
		old.start(w.plug(old))
		<-time.After(2 * time.Second)
		require.Equal(t, term+1, w.term(), "the restarted node disturbs nobody")

		// The next crash comes too soon: it is left to the timers.
		at = time.Now()
		w.crash(next)
		w.leader(w.others(next)...)
		require.Greater(t, time.Since(at), DefaultTimers().HeartbeatTimeout-110*time.Millisecond)
		require.Equal(t, term+2, w.term())
	})
}

// TestElectionStabilityCostsNoTerm has, one after the other, what must disturb no leader.
func TestElectionStabilityCostsNoTerm(t *testing.T) {
	const watched = 2 * time.Second
	wired(t, func(t *testing.T, w *wires) {
		leader, learner := w.leader(), w.join()
		follower := w.others(leader)[0]
		term := w.term()
		for _, c := range []struct {
			name  string
			fault func()
		}{
			{"the probe port is rejected", func() {
				for range 4 { // each time the last echo is a moment old
					w.sim.Reject(w.ports[leader.id], true)
					<-time.After(watched / 4)
					w.sim.Reject(w.ports[leader.id], false)
					<-time.After(watched / 4)
				}
				require.NotZero(t, w.sim.Stats().Refused, "nothing was rejected")
			}},
			{"a follower sleeps", func() {
				w.sim.Lag(w.ports[follower.id], 5*time.Second)
				<-time.After(5 * time.Second)
				w.sim.Lag(w.ports[follower.id], 0)
			}},
			{"the machine is busy", func() {
				w.sim.Delay(0, 90*time.Millisecond)
				<-time.After(watched)
				w.sim.Delay(time.Millisecond, 3*time.Millisecond)
			}},
			{"testimony is asked for", func() { testimonyIsForVoters(t, w, leader, follower, learner) }},
			{"a learner crashes", func() { w.kill(learner) }},
		} {
			c.fault()
			<-time.After(watched)
			require.Equal(t, term, w.term(), c.name)
			require.Same(t, leader, w.leader(), c.name)
		}
	})
}

// TestElectionStabilityCostsOneTerm: a leader that is dead costs one term,
// whatever is heard of its death.
func TestElectionStabilityCostsOneTerm(t *testing.T) {
	wired(t, func(t *testing.T, w *wires) {
		w.sim.LoseRefusals(true)
		leader, term, at := w.leader(), w.term(), time.Now()
		w.crash(leader)
		next := w.leader(w.others(leader)...)
		require.Greater(t, time.Since(at), DefaultTimers().HeartbeatTimeout-110*time.Millisecond, "by the timers alone")
		w.kill(leader)
		leader.start(w.plug(leader))
		<-time.After(2 * time.Second)
		require.NotZero(t, w.sim.Stats().Refused, "nothing was dropped")
		require.Equal(t, term+1, w.term())

		w.sim.LoseRefusals(false)
		at = time.Now()
		w.kill(next)
		next.start(w.plug(next))
		require.LessOrEqual(t, time.Since(at), 50*time.Millisecond, "its port was closed for longer")
		<-time.After(3 * time.Second)
		w.leader()
		require.Equal(t, term+2, w.term())
	})
}

// testimonyIsForVoters: only their certificates make them so.
func testimonyIsForVoters(t *testing.T, w *wires, leader, follower, learner *member) {
	ask := func(as pki.Subject) error {
		_, err := follower.node.handleTestify(t.Context(), transport.Peer{Subject: as}, []byte{0xa0})
		return err
	}
	require.NoError(t, ask(pki.Node(w.cluster, leader.id)))
	require.ErrorIs(t, ask(pki.Node(w.cluster, learner.id)), ErrNotPermitted)
	require.ErrorIs(t, ask(pki.Node(w.cluster, cluster.NewNodeID())), ErrNotPermitted)
	require.ErrorIs(t, ask(pki.Node(cluster.NewClusterID(), leader.id)), ErrNotPermitted)
	require.ErrorIs(t, ask(pki.Subject{Cluster: w.cluster, Kind: pki.KindAgent, ID: leader.id.String()}), ErrNotPermitted)
	said := follower.node.early.Testify()
	require.False(t, said.Gone)
	require.Equal(t, leader.id, said.Case.Leader)
	require.NotEqual(t, fsm.IncarnationID{}, said.Case.Incarnation)
	require.Equal(t, follower.node.raft.LastIndex(), said.Position.Index)
}

// An append that came after the last look calls the campaign off: the leader is there.
func TestElectionStabilityNoCampaignAfterAnAppend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		follower := f.others(f.leader())[0]
		engine := consensus{follower.node}
		was := engine.Standing()
		require.Eventually(t, func() bool { return engine.Standing().Appended.After(was.Appended) }, time.Minute, 10*time.Millisecond)
		require.ErrorIs(t, engine.Campaign(t.Context(), was), errLeaderBack)
		now := engine.Standing()
		now.Term--
		require.ErrorIs(t, engine.Campaign(t.Context(), now), errLeaderBack)
	})
}
