// Joining and promotion, end to end and refused.

package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// bubble runs a test of a fleet in virtual time.
func bubble(t *testing.T, run func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.close()
		run(t, f)
	})
}

func TestGrowOneToThree(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(3)
		leader := f.leader()
		require.Len(t, leader.node.Suffrage().Voters, 3)
		for _, m := range f.nodes {
			f.eventually(func() bool {
				v := m.node.View()
				x, ok := v.Member(m.id)
				return ok && x.Role == fsm.Voter && x.State == fsm.Active && x.Incarnation == m.self.Incarnation
			})
			f.eventually(func() bool { return time.Since(m.node.Confirmed()) < cluster.ConfirmationBound })
		}
		require.Equal(t, []string{"accepted", "accepted"}, f.audit.outcomes("cluster.join"))
		require.Equal(t, []string{"accepted", "accepted"}, f.audit.outcomes("cluster.promote"))

		// The grown fleet survives the loss of its leader and a full restart.
		term := leader.node.View().RaftTerm
		leader.stop()
		require.Greater(t, f.leader().node.View().RaftTerm, term)
		for _, m := range f.nodes {
			m.stop()
		}
		for _, m := range f.nodes {
			m.start(false)
		}
		f.leader()
	})
}

func TestJoinThroughAFollowerAndPromoteFromAnyNode(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(3)
		m := f.add()
		m.start(false)
		follower := f.other()
		require.NoError(t, m.join(f.invite(follower, m), follower))
		f.active(follower, m)
		require.Len(t, f.leader().node.Suffrage().Nonvoters, 1, "nobody is promoted by itself")

		_, err := m.registrar.Promote(t.Context(), PromoteRequest{Node: "node-"}, "the test")
		require.ErrorIs(t, err, ErrNoMember, "a prefix that means four members")
		p, err := m.registrar.Promote(t.Context(), PromoteRequest{Node: m.id.String()}, "the test")
		require.NoError(t, err)
		require.Equal(t, 4, p.Voters)
		require.False(t, p.Already)
		p, err = m.registrar.Promote(t.Context(), PromoteRequest{Node: m.name}, "the test")
		require.NoError(t, err)
		require.True(t, p.Already)
	})
}

func TestRefusedJoins(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.nodes[0]
		before := first.node.View().Members

		m := f.add()
		m.start(false)
		refused := func(err error, code string) {
			t.Helper()
			require.Equal(t, cluster.JoinRejected, cluster.KindOf(err), "%v", err)
			require.ErrorContains(t, err, code)
			require.Equal(t, before, first.node.View().Members)
			require.Empty(t, first.node.Suffrage().Nonvoters)
		}
		refused(m.join("", first), ErrToken.Code)
		refused(m.join("fyj_short", first), ErrToken.Code)
		refused(m.join(string(newToken()), first), errTokenRefused.Code)

		// Made for another node.
		o := f.add()
		refused(m.join(f.invite(first, o), first), errTokenRefused.Code)

		// Expired.
		late := f.invite(first, m)
		<-time.After(DefaultTokenTTL + time.Second)
		refused(m.join(late, first), errTokenRefused.Code)

		// Used by another certificate of the same id: a copied identity does not pass.
		token := f.invite(first, m)
		twin := f.addAs(m.id)
		twin.start(false)
		hash, err := Token(token).hash()
		require.NoError(t, err)
		require.NoError(t, f.tokens.RedeemToken(t.Context(), hash, f.ca.Cluster(), m.id, [32]byte{1}))
		refused(twin.join(token, first), errTokenRefused.Code)
		require.NotContains(t, f.audit.outcomes("cluster.join"), "accepted")
	})
}

func TestMemberAndRemovedIDsMayNotJoin(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(2)
		leader, other := f.leader(), f.other()
		_, err := leader.registrar.Add(t.Context(), AddRequest{Node: other.id}, "the test")
		require.ErrorIs(t, err, ErrAlreadyMember)

		// An Active member without its data cannot come in by a token again.
		gone := f.add()
		gone.start(false)
		token := f.invite(leader, gone)
		require.NoError(t, gone.join(token, leader))
		f.active(leader, gone)
		require.ErrorContains(t, gone.join(token, leader), ErrAlreadyMember.Code)

		_, err = leader.registrar.propose(t.Context(), fsm.RemoveMember{ExpectedConfig: leader.node.View().Config, Node: gone.id, Force: true})
		require.NoError(t, err)
		_, err = leader.registrar.Add(t.Context(), AddRequest{Node: gone.id}, "the test")
		require.ErrorIs(t, err, ErrRemoved)
		f.eventually(func() bool { return other.node.View().Tombstoned(gone.id) })
		var reply joinReply
		_, err = gone.endpoint.CallAddr(t.Context(), other.addr, transport.FamilyControl, methodJoin, joinRequest{Step: stepLook}, &reply)
		var refusal *transport.Error
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, transport.CodeRemoved, refusal.Code)
		require.Contains(t, f.audit.outcomes("cluster.add"), "refused")
	})
}

func TestPromoteTooEarlyIsRefusedWithNumbers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.nodes[0]
		m := f.add()
		m.start(false)
		require.NoError(t, m.join(f.invite(first, m), first))
		f.active(first, m)
		// It falls silent: its last answer ages.
		f.net.Isolate(m.addr)
		<-time.After(2 * MaxSilence)
		_, err := first.registrar.Promote(t.Context(), PromoteRequest{Node: m.name}, "the test")
		require.ErrorIs(t, err, ErrNotReady)
		require.ErrorContains(t, err, "limit 2s")
		require.Len(t, first.node.Suffrage().Voters, 1)
		require.Equal(t, []string{"refused"}, f.audit.outcomes("cluster.promote"))
		f.net.HealAll()
		f.eventually(func() bool {
			_, err := first.registrar.Promote(t.Context(), PromoteRequest{Node: m.name}, "the test")
			return err == nil
		})
	})
}

// A mistyped address costs nothing: the joiner stays outside the quorum and outside the log.
func TestUnreachableJoinerChangesNoQuorum(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.nodes[0]
		m := f.add()
		m.start(false)
		right := m.addr
		m.addr = "10.9.9.9:7443" // what it says of itself
		token := f.invite(first, m)
		v, err := m.joiner(first).Join(t.Context(), Token(token))
		require.NoError(t, err)
		require.Len(t, v.Members, 2)
		m.endpoint.CloseNode(first.id, "its connection would hide the mistake")
		<-time.After(10 * time.Second)
		require.False(t, first.node.Suffrage().Contains(m.id))
		require.Len(t, first.node.Suffrage().Voters, 1)

		// Corrected, the same token and certificate go on where they stopped.
		m.addr = right
		require.NoError(t, m.join(token, first))
		f.active(first, m)
	})
}

func TestJoinWaitsForPostgres(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.nodes[0]
		m := f.add()
		m.start(false)
		token := f.invite(first, m)
		f.tokens.mu.Lock()
		f.tokens.down = errors.New("connection refused")
		f.tokens.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- m.join(token, first) }()
		<-time.After(3 * time.Second)
		require.Empty(t, done)
		f.tokens.mu.Lock()
		f.tokens.down = nil
		f.tokens.mu.Unlock()
		require.NoError(t, <-done)
	})
}

func TestBootstrapBesideAClusterIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		m := f.add()
		m.start(false)
		require.ErrorIs(t, m.joiner(f.nodes[0]).CheckNoCluster(t.Context()), ErrClusterExists)
		o := f.add()
		o.start(false)
		require.NoError(t, m.joiner(o).CheckNoCluster(t.Context()), "a node that belongs to no cluster is no obstacle")

		// Silent seeds, however many, cost one bound, and none when another seed answers.
		j := m.joiner()
		for i := range 4 {
			j.Seeds = append(j.Seeds, fmt.Sprintf("10.0.9.%d:7443", i))
		}
		begin := time.Now()
		require.NoError(t, j.CheckNoCluster(t.Context()))
		require.LessOrEqual(t, time.Since(begin), joinCall+time.Second)
		j.Seeds = append(j.Seeds, f.nodes[0].addr)
		begin = time.Now()
		require.ErrorIs(t, j.CheckNoCluster(t.Context()), ErrClusterExists)
		require.Less(t, time.Since(begin), joinCall)
	})
}

// The record of an act neither waits long for PostgreSQL nor ends with the caller.
func TestAuditIsBoundedAndOutlivesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		r := f.leader().registrar
		left, leave := context.WithCancel(t.Context())
		leave()
		before := len(f.audit.outcomes("cluster.promote"))
		_, err := r.Promote(left, PromoteRequest{Node: "nobody"}, "the test")
		require.ErrorIs(t, err, ErrNoMember)
		require.Len(t, f.audit.outcomes("cluster.promote"), before+1)

		f.audit.mu.Lock()
		f.audit.down = true
		f.audit.mu.Unlock()
		begin := time.Now()
		_, err = r.Promote(t.Context(), PromoteRequest{Node: "nobody"}, "the test")
		require.ErrorIs(t, err, ErrNoMember)
		require.LessOrEqual(t, time.Since(begin), auditBound)
	})
}

// The leader dies between the committed promotion and the vote: the next one finishes it.
func TestCommittedPromotionIsFinishedByTheNextLeader(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(3)
		leader := f.leader()
		m := f.add()
		m.start(false)
		require.NoError(t, m.join(f.invite(leader, m), leader))
		f.active(leader, m)
		leader.registrar.Close() // its repair cannot do it
		_, err := leader.registrar.propose(t.Context(), fsm.PromoteVoter{ExpectedConfig: leader.node.View().Config, Node: m.id})
		require.NoError(t, err)
		leader.stop()
		next := f.leader()
		<-time.After(5 * time.Second)
		require.Len(t, next.node.Suffrage().Voters, 3, "not while a voter may lack the previous change")
		leader.start(false)
		f.eventually(func() bool { return len(f.leader().node.Suffrage().Voters) == 4 })
	})
}

func TestManyJoinAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.nodes[0]
		results := make(chan error, 4)
		for range cap(results) {
			m := f.add()
			m.start(false)
			token := f.invite(first, m)
			go func() { results <- m.join(token, first) }()
		}
		for range cap(results) {
			require.NoError(t, <-results)
		}
		for _, m := range f.nodes[1:] {
			f.active(first, m)
		}
		require.Len(t, first.node.Suffrage().Nonvoters, 4)
	})
}

func TestJoinAttemptsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		m := f.add()
		m.start(false)
		var last error
		for range joinsPerSource + 1 {
			var reply joinReply
			_, last = m.endpoint.CallAddr(t.Context(), f.nodes[0].addr, transport.FamilyControl, methodJoin,
				joinRequest{Step: stepRedeem, Token: string(newToken()), Member: m.member()}, &reply)
			require.Error(t, last)
		}
		require.ErrorContains(t, last, ErrTooManyJoins.Code)
	})
}

func TestTokensAreNeverPrinted(t *testing.T) {
	token := newToken()
	require.Len(t, string(token), len(tokenPrefix)+43)
	require.False(t, strings.Contains(token.String(), string(token)[len(tokenPrefix):]))
	require.NotEqual(t, token, newToken())
}

func TestJoinRequestIsSmall(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		m := f.add()
		m.start(false)
		req := joinRequest{Step: stepLook, Member: m.member(), Token: strings.Repeat("x", maxJoin)}
		_, err := m.endpoint.CallAddr(t.Context(), f.nodes[0].addr, transport.FamilyControl, methodJoin, req, nil)
		require.ErrorIs(t, err, &transport.Error{Code: transport.CodeTooLarge})
	})
}
