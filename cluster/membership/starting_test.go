// Seeds and leaders that are only starting, and refusals of one seed beside the answers of the others.

package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// TestStartingSeedIsWaitedFor: the endpoint of a seed listens for a second before
// there is an engine behind it.
func TestStartingSeedIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first, m := f.nodes[0], f.add()
		token := f.invite(first, m)
		first.stop()
		first.listen()
		m.start(false)
		joined := make(chan error, 1)
		go func() { joined <- m.join(token, first) }()
		<-time.After(time.Second)
		require.Empty(t, joined, "it goes on asking")
		first.open(false)
		require.NoError(t, <-joined)
		f.active(first, m)
	})
}

// TestStartingSeedHidesNoOther: the first seed stays without an engine, the second one leads.
func TestStartingSeedHidesNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first, starting, m := f.nodes[0], f.add(), f.add()
		starting.listen()
		m.start(false)
		require.NoError(t, m.join(f.invite(first, m), starting, first))
		f.active(first, m)
	})
}

// TestStartingLeaderTakesProposalsLater: a leader is back before its followers have
// noticed, but not its engine. What they propose, or ask, waits or may be asked again;
// nobody is told that he is no member.
func TestStartingLeaderTakesProposalsLater(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(3)
		leader, follower := f.leader(), f.other()
		<-time.After(time.Second) // the follower knows whom it follows
		leader.stop()
		leader.listen()
		<-time.After(20 * time.Millisecond) // what ends the old connection has arrived; whoever still uses it cannot tell the outcome
		require.Equal(t, leader.id, follower.node.View().KnownLeader)
		_, err := follower.registrar.Promote(t.Context(), PromoteRequest{Node: leader.name}, "the test")
		require.True(t, cluster.KindOf(err).Retryable(), "%v", err)
		require.False(t, cluster.OutcomeUnknown(err), "it was refused: %v", err)
		answer := make(chan error, 1)
		go func() {
			_, err := follower.registrar.propose(t.Context(), fsm.ReleaseRole{
				Role: fsm.SchedulerLeader, ExpectedEpoch: 1, Node: follower.id, Incarnation: follower.self.Incarnation,
			})
			answer <- err
		}()
		<-time.After(100 * time.Millisecond)
		require.Empty(t, answer, "it is tried again")
		leader.open(false)
		err = <-answer
		require.ErrorIs(t, err, cluster.ErrFenced, "the log has judged it")
		require.False(t, cluster.OutcomeUnknown(err), "%v", err)
	})
}

// TestBootstrapWaitsForAStartingSeed: whether a seed belongs to a cluster is known once its engine
// is open. One that stays without costs the bound, the node's own address nothing.
func TestBootstrapWaitsForAStartingSeed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first, m, slow := f.nodes[0], f.add(), f.add()
		first.stop()
		first.listen()
		slow.listen()
		m.listen()
		found := make(chan error, 1)
		go func() { found <- m.joiner(m, slow, first).CheckNoCluster(t.Context()) }()
		<-time.After(time.Second)
		require.Empty(t, found, "it goes on asking")
		first.open(false)
		require.ErrorIs(t, <-found, ErrClusterExists)

		begin := time.Now()
		require.NoError(t, m.joiner(slow).CheckNoCluster(t.Context()))
		require.Equal(t, joinCall, time.Since(begin).Round(time.Second))
		begin = time.Now()
		require.NoError(t, m.joiner(m).CheckNoCluster(t.Context()))
		require.Less(t, time.Since(begin), joinPauseMin)
	})
}

// script is a Control that answers each seed's calls in order, the last one for ever.
type script struct {
	voters
	answers map[string][]answer
	asked   map[string]int
}

type answer struct {
	from fsm.NodeID // zero: there was no connection
	err  error
}

func (s *script) CallAddr(_ context.Context, addr string, _ transport.Family, _ string, _, _ any) (transport.Peer, error) {
	all := s.answers[addr]
	a := all[min(s.asked[addr], len(all)-1)]
	s.asked[addr]++
	if a.from.IsZero() {
		return transport.Peer{}, a.err
	}
	return transport.Peer{Subject: pki.Node(cluster.NewClusterID(), a.from)}, a.err
}

// TestOneRefusalHidesNoOtherSeed: all seeds are asked before a refusal ends the join, and it goes on
// while one that answers may yet admit the node. The leader's own verdict ends it at once.
func TestOneRefusalHidesNoOtherSeed(t *testing.T) {
	self, a, b := cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID()
	refuse := func(c transport.Code) error { return &transport.Error{Code: c, Remote: true} }
	verdict := func(e *cluster.Error) error {
		w := &transport.WireError{}
		w.Kind, w.Code, w.Message, w.Hint, w.OutcomeUnknown = e.WireFields()
		return w
	}
	foreign := answer{a, refuse(transport.CodeWrongCluster)}
	older := answer{b, refuse(transport.CodeNoHandler)}
	starting := answer{b, refuse(transport.CodeStarting)}
	silent := answer{err: refuse(transport.CodeTimeout)}
	admits := answer{from: b}
	for name, c := range map[string]struct {
		first, second []answer
		code          string // "": it joins
		asked         [2]int
	}{
		"the other admits":                 {[]answer{foreign}, []answer{admits}, "", [2]int{1, 1}},
		"the other one starts":             {[]answer{foreign}, []answer{starting, starting, admits}, "", [2]int{3, 3}},
		"the first one starts":             {[]answer{starting, admits}, []answer{foreign}, "", [2]int{2, 1}},
		"the other knows no leader yet":    {[]answer{foreign}, []answer{{b, verdict(cluster.ErrNoQuorum)}, admits}, "", [2]int{2, 2}},
		"all refuse":                       {[]answer{foreign}, []answer{older}, "FY-CERT-005", [2]int{1, 1}},
		"one refuses, the other is silent": {[]answer{silent}, []answer{foreign}, "FY-CERT-005", [2]int{1, 1}},
		"one refuses, the other is itself": {[]answer{foreign}, []answer{{self, verdict(cluster.ErrNoQuorum)}}, "FY-CERT-005", [2]int{1, 1}},
		"the token is spent":               {[]answer{{a, verdict(ErrToken)}}, []answer{starting}, ErrToken.Code, [2]int{1, 0}},
		"the node was removed":             {[]answer{{a, refuse(transport.CodeRemoved)}}, []answer{starting}, "FY-NET-013", [2]int{1, 0}},
		"a seed cannot read it":            {[]answer{{a, verdict(raftnode.ErrMalformed)}}, []answer{admits}, "", [2]int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: map[string][]answer{"first": c.first, "second": c.second}, asked: map[string]int{}}
				j := &Joiner{Control: s, Seeds: []string{"first", "second"}, Member: fsm.Member{Node: self}}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := j.Join(ctx, newToken())
				if c.code == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.code)
				}
				require.Equal(t, c.asked, [2]int{s.asked["first"], s.asked["second"]})
			})
		})
	}
}
