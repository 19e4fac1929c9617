// What proves leadership, and since when: the send time of an append that a majority acknowledged.

package rafttransport_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// follower answers appends as a test tells it to.
type follower struct {
	*peer
	trans *rafttransport.Transport
	done  chan struct{}
}

// answerer decides the answer to an append; it may wait.
type answerer func(q *raft.AppendEntriesRequest) *raft.AppendEntriesResponse

// follow serves a transport without raft until its transport closes.
func follow(p *peer, h answerer) *follower {
	f := &follower{peer: p, done: make(chan struct{})}
	f.trans = rafttransport.New(rafttransport.Config{Endpoint: p.Endpoint, Self: p.id})
	stop := make(chan struct{})
	f.done = stop
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(p.id.String()), Addr: []byte(p.id.String())}
	f.trans.SetHeartbeatHandler(func(rpc raft.RPC) {
		a := h(rpc.Command.(*raft.AppendEntriesRequest))
		a.RPCHeader = header
		rpc.Respond(a, nil)
	})
	go func() {
		for {
			select {
			case rpc := <-f.trans.Consumer():
				a := h(rpc.Command.(*raft.AppendEntriesRequest))
				a.RPCHeader = header
				rpc.Respond(a, nil)
			case <-stop:
				return
			}
		}
	}()
	return f
}

func (f *follower) stop(t *testing.T) {
	t.Helper()
	close(f.done)
	require.NoError(t, f.trans.Close())
	require.NoError(t, f.Endpoint.Close())
}

func agree(q *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	return &raft.AppendEntriesResponse{Term: q.Term, Success: true}
}

// lead is a transport that sends appends as a leader's raft would.
type lead struct {
	*peer
	trans *rafttransport.Transport
}

func leading(p *peer, wait time.Duration) *lead {
	return &lead{p, rafttransport.New(rafttransport.Config{
		Endpoint: p.Endpoint, Self: p.id, HeartbeatTimeout: wait, ElectionTimeout: wait, AppendTimeout: wait,
	})}
}

func (l *lead) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, l.trans.Close())
	require.NoError(t, l.Endpoint.Close())
}

// append sends an append of term; prev 0 and no entries make a heartbeat.
func (l *lead) append(to fsm.NodeID, term, prev uint64, entries int) error {
	q := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(l.id.String()), Addr: []byte(l.id.String())},
		Term:      term, PrevLogEntry: prev, PrevLogTerm: min(prev, 1), LeaderCommitIndex: prev,
	}
	for i := range entries {
		q.Entries = append(q.Entries, &raft.Log{Index: prev + uint64(i) + 1, Term: term, Data: []byte("x")})
	}
	return l.trans.AppendEntries(raft.ServerID(to.String()), raft.ServerAddress(to.String()), q, &raft.AppendEntriesResponse{})
}

func TestFencingClockConfirmedCountsFromTheSendTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(5)
		sim.Delay(time.Millisecond, time.Millisecond)
		ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
		node := func(addr string) *peer { return open(t, ca, dir, newID(), sim.Listen(addr)) }
		l := leading(node("10.0.0.1:1"), 30*time.Second)
		thaw := make(chan struct{})
		quick := follow(node("10.0.0.2:1"), agree)
		paused := follow(node("10.0.0.3:1"), func(q *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			<-thaw // as a stopped process does: the request waits in its buffers
			return agree(q)
		})
		denies := follow(node("10.0.0.4:1"), func(q *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
			return &raft.AppendEntriesResponse{Term: q.Term + 1}
		})
		defer func() {
			for _, f := range []*follower{quick, paused, denies} {
				f.stop(t)
			}
			l.stop(t)
		}()
		three := []fsm.NodeID{l.id, quick.id, paused.id}

		require.True(t, l.trans.Confirmed(1, three).IsZero(), "nobody has acknowledged anything")
		require.WithinDuration(t, time.Now(), l.trans.Confirmed(1, []fsm.NodeID{l.id}), 0, "a single voter confirms itself")
		require.True(t, l.trans.Confirmed(1, nil).IsZero())

		require.NoError(t, l.append(quick.id, 1, 0, 0)) // connects
		before := time.Now()
		require.NoError(t, l.append(quick.id, 1, 0, 0))
		require.Equal(t, 2*time.Millisecond, time.Since(before))
		require.True(t, before.Equal(l.trans.Confirmed(1, three)), "the send time, not the time of the answer")

		// Of five voters one answer is no majority.
		require.True(t, l.trans.Confirmed(1, append(three, newID(), newID())).IsZero())
		// Votes of nodes outside the voters do not count.
		require.True(t, l.trans.Confirmed(1, []fsm.NodeID{l.id, paused.id, newID()}).IsZero())
		// A node that is no voter does not count itself.
		require.True(t, before.Equal(l.trans.Confirmed(1, []fsm.NodeID{quick.id})))

		// A paused follower answers ten seconds late: its answer proves the past only.
		sent := time.Now()
		late := make(chan error, 1)
		go func() { late <- l.append(paused.id, 1, 0, 0) }()
		<-time.After(10 * time.Second)
		two := []fsm.NodeID{l.id, paused.id}
		require.True(t, l.trans.Confirmed(1, two).IsZero())
		close(thaw)
		require.NoError(t, <-late)
		confirmed := l.trans.Confirmed(1, two)
		require.WithinDuration(t, sent, confirmed, 100*time.Millisecond, "connecting took what is above zero")
		require.Greater(t, time.Since(confirmed), 9*time.Second)

		// A refusal, and a success of another term, prove nothing.
		require.NoError(t, l.append(denies.id, 1, 0, 0))
		require.True(t, l.trans.Confirmed(1, []fsm.NodeID{l.id, denies.id}).IsZero())
		require.True(t, l.trans.Confirmed(2, two).IsZero())

		// Entries prove as well, and move the match index; a later heartbeat does not move it back.
		require.NoError(t, l.append(quick.id, 1, 7, 3))
		require.NoError(t, l.append(quick.id, 1, 0, 0))
		peers := l.trans.Peers()
		require.Len(t, peers, 2)
		for _, p := range peers {
			if p.Node == quick.id {
				require.Equal(t, uint64(10), p.MatchIndex)
				require.True(t, time.Now().Equal(p.LastContact))
			}
		}

		// A new term starts from nothing, and an old one is never counted again.
		require.NoError(t, l.append(quick.id, 2, 0, 0))
		require.Len(t, l.trans.Peers(), 1)
		require.Zero(t, l.trans.Peers()[0].MatchIndex)
		require.True(t, l.trans.Confirmed(1, two).IsZero())
		require.False(t, l.trans.Confirmed(2, three).IsZero())
		require.NoError(t, l.append(quick.id, 1, 7, 3))
		require.Zero(t, l.trans.Peers()[0].MatchIndex)
	})
}

// TestDeadlines: no request waits for a peer longer than its kind may.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(6)
		ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
		l := leading(open(t, ca, dir, newID(), sim.Listen("10.0.0.1:1")), 400*time.Millisecond)
		defer l.stop(t)
		// A node whose raft never looks at its requests.
		p := open(t, ca, dir, newID(), sim.Listen("10.0.0.2:1"))
		deaf := rafttransport.New(rafttransport.Config{Endpoint: p.Endpoint, Self: p.id})
		defer func() {
			require.NoError(t, deaf.Close())
			require.NoError(t, p.Close())
		}()
		id, addr := raft.ServerID(p.id.String()), raft.ServerAddress(p.id.String())
		h := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(l.id.String()), Addr: []byte(l.id.String())}
		for name, c := range map[string]struct {
			bound time.Duration
			call  func() error
		}{
			"TimeoutNow": {200 * time.Millisecond, func() error {
				return l.trans.TimeoutNow(id, addr, &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
			}},
			"RequestVote": {400 * time.Millisecond, func() error {
				return l.trans.RequestVote(id, addr, &raft.RequestVoteRequest{RPCHeader: h, Term: 1}, &raft.RequestVoteResponse{})
			}},
			"RequestPreVote": {400 * time.Millisecond, func() error {
				return l.trans.RequestPreVote(id, addr, &raft.RequestPreVoteRequest{RPCHeader: h, Term: 1}, &raft.RequestPreVoteResponse{})
			}},
			"heartbeat":     {400 * time.Millisecond, func() error { return l.append(p.id, 1, 0, 0) }},
			"AppendEntries": {400 * time.Millisecond, func() error { return l.append(p.id, 1, 1, 1) }},
			"unknown node":  {0, func() error { return l.append(newID(), 1, 1, 1) }},
		} {
			began := time.Now()
			require.Error(t, c.call(), name)
			require.Equal(t, c.bound, time.Since(began), name)
		}

		// Close ends what waits.
		got := make(chan error, 1)
		go func() { got <- l.append(p.id, 1, 1, 1) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, l.trans.Close())
		require.Error(t, <-got)
		require.Zero(t, time.Since(began))
		require.Error(t, l.append(p.id, 1, 0, 0), "closed")
	})
}

// TestHungHandoverDoesNotStopTheLeader: the node that should take over never
// hears of it; the leader goes on within two election timeouts.
func TestHungHandoverDoesNotStopTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(7)
		sim.Delay(time.Millisecond, 2*time.Millisecond)
		addrs := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}
		ms, _, _ := trio(t, 0, bubbleTimer, func(i int) net.PacketConn { return sim.Listen(addrs[i]) })
		defer func() {
			for _, m := range ms {
				m.stop(t)
			}
		}()
		l := leader(t, ms)
		apply(t, l, 3)
		target := ms[0]
		if target == l {
			target = ms[1]
		}
		sim.CutOneWay(l.Addr().String(), target.Addr().String())
		began := time.Now()
		require.Error(t, l.raft.LeadershipTransferToServer(raft.ServerID(target.id.String()), raft.ServerAddress(target.id.String())).Error())
		sim.HealAll()
		require.Eventually(t, func() bool {
			return leader(t, ms).raft.Apply([]byte("x"), time.Second).Error() == nil
		}, time.Minute, 5*time.Millisecond)
		require.Less(t, time.Since(began), 5*bubbleTimer)
	})
}
