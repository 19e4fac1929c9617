// Three real raft nodes over QUIC.

package rafttransport_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestRaftOverQUIC(t *testing.T) {
	ms, _, _ := trio(t, 0, realTimer, func(int) net.PacketConn { return loopback(t) })
	defer func() {
		for _, m := range ms {
			m.stop(t)
		}
	}()
	lead := leader(t, ms)
	apply(t, lead, 50)
	for _, m := range ms {
		require.Eventually(t, func() bool { return m.fsm.count() == 50 }, 30*time.Second, 5*time.Millisecond)
	}

	// The transport knows each follower's log, and since when a majority follows.
	require.Eventually(t, func() bool {
		peers := lead.trans.Peers()
		return len(peers) == 2 && peers[0].MatchIndex == lead.raft.LastIndex() && peers[1].MatchIndex == lead.raft.LastIndex()
	}, 30*time.Second, 5*time.Millisecond)
	require.WithinDuration(t, time.Now(), lead.trans.Confirmed(lead.raft.CurrentTerm(), ids(ms)), realTimer)

	// A handover uses TimeoutNow, votes with a known leader, and a new term.
	require.NoError(t, lead.raft.LeadershipTransfer().Error())
	require.Eventually(t, func() bool { return lead.raft.State() == raft.Follower }, 30*time.Second, 5*time.Millisecond)
	next := leader(t, ms)
	require.NotEqual(t, lead.id, next.id)
	apply(t, next, 1)
}

func TestRaftInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(1)
		sim.Delay(time.Millisecond, 3*time.Millisecond)
		addrs := []string{"10.0.0.1:7443", "10.0.0.2:7443", "10.0.0.3:7443"}
		ms, _, _ := trio(t, 0, bubbleTimer, func(i int) net.PacketConn { return sim.Listen(addrs[i]) })
		defer func() {
			for _, m := range ms {
				m.stop(t)
			}
		}()
		lead := leader(t, ms)
		apply(t, lead, 20)
		term := lead.raft.CurrentTerm()

		at := time.Now()
		sim.Isolate(lead.Addr().String())
		last := lead.trans.Confirmed(term, ids(ms))
		require.WithinDuration(t, at, last, bubbleTimer)
		<-time.After(5 * time.Second) // virtual
		stopped := lead.trans.Confirmed(term, ids(ms))
		require.False(t, stopped.After(at), "an append sent after the cut was confirmed")
		require.NotEqual(t, raft.Leader, lead.raft.State())

		var rest []*member
		for _, m := range ms {
			if m != lead {
				rest = append(rest, m)
			}
		}
		next := leader(t, rest)
		require.Greater(t, next.raft.CurrentTerm(), term)
		apply(t, next, 20)

		sim.HealAll()
		require.Eventually(t, func() bool { return lead.fsm.count() == 40 }, time.Minute, 10*time.Millisecond)
		require.Same(t, next, leader(t, ms), "the healed node did not depose the leader")
		require.True(t, lead.trans.Confirmed(term, ids(ms)).Equal(stopped), "the old term's confirmation never moves again")
	})
}
