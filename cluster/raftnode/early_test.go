// Election stability: a crash is followed by one early election, and nothing else by any.

package raftnode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// early bounds the time from a crash to the next leader's barrier: the oldest
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
		<-time.After(3 * time.Second)
		require.Equal(t, term+1, w.term(), "the restarted node disturbs nobody")

		// The next crash comes too soon: it is left to the timers.
		at = time.Now()
		w.crash(next)
		last := w.leader(w.others(next)...)
		require.Greater(t, time.Since(at), DefaultTimers().HeartbeatTimeout-110*time.Millisecond)
		require.Equal(t, term+2, w.term())
		w.kill(next)
		next.start(w.plug(next))

		<-time.After(early.Rest + time.Second)
		at = time.Now()
		w.crash(last)
		w.leader(w.others(last)...)
		require.Less(t, time.Since(at), earlyBound, "after a rest there is an early election again")
		require.Equal(t, term+3, w.term())
	})
}

// TestElectionStability has one fault each that must cost no term, or none
// beyond the one that a dead leader costs in any case.
func TestElectionStability(t *testing.T) {
	const watched = 10 * time.Second
	for name, c := range map[string]struct {
		terms uint64
		fault func(t *testing.T, w *wires)
	}{
		"the probe port is rejected": {0, func(t *testing.T, w *wires) {
			leader := w.leader()
			for range 4 {
				w.sim.Reject(w.ports[leader.id], true)
				<-time.After(watched / 8)
				w.sim.Reject(w.ports[leader.id], false)
				<-time.After(watched / 8)
			}
			require.NotZero(t, w.sim.Stats().Refused, "nothing was rejected")
		}},
		"refusals are dropped": {1, func(t *testing.T, w *wires) {
			w.sim.LoseRefusals(true)
			leader, at := w.leader(), time.Now()
			w.crash(leader)
			w.leader(w.others(leader)...)
			require.Greater(t, time.Since(at), DefaultTimers().HeartbeatTimeout-110*time.Millisecond, "by the timers alone")
			<-time.After(watched)
			require.NotZero(t, w.sim.Stats().Refused, "nothing was dropped")
		}},
		"a follower sleeps": {0, func(_ *testing.T, w *wires) {
			follower := w.others(w.leader())[0]
			w.sim.Lag(w.ports[follower.id], 10*time.Second)
			<-time.After(10 * time.Second)
			w.sim.Lag(w.ports[follower.id], 0)
			<-time.After(watched)
		}},
		"a learner crashes": {0, func(_ *testing.T, w *wires) {
			learner := w.join()
			<-time.After(3 * time.Second)
			w.crash(learner)
			<-time.After(watched)
		}},
		"the leader restarts on its port": {1, func(t *testing.T, w *wires) {
			leader := w.leader()
			at := time.Now()
			w.kill(leader)
			leader.start(w.plug(leader))
			require.LessOrEqual(t, time.Since(at), 50*time.Millisecond)
			<-time.After(watched)
			w.leader()
		}},
		"the machine is busy": {0, func(_ *testing.T, w *wires) {
			w.sim.Delay(0, 90*time.Millisecond)
			<-time.After(watched)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			wired(t, func(t *testing.T, w *wires) {
				term := w.term()
				c.fault(t, w)
				require.Equal(t, term+c.terms, w.term())
			})
		})
	}
}

// Only voters are asked for testimony, and only their certificates make them so.
func TestTestimonyIsForVoters(t *testing.T) {
	wired(t, func(t *testing.T, w *wires) {
		learner, leader := w.join(), w.leader()
		follower := w.others(leader)[0]
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
	})
}
