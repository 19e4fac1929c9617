// Who may talk to this node, case by case, and vouching for a peer it has not heard of.

package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// knowledge is a fixed picture of the cluster.
type knowledge struct {
	view     fsm.View
	suffrage raftnode.Suffrage
	newest   raftnode.Suffrage // in the log, where it differs from the committed one
}

func (k *knowledge) View() cluster.View { return cluster.View{View: k.view} }
func (k *knowledge) Suffrage() raftnode.Suffrage {
	if k.newest.Voters != nil {
		return k.newest
	}
	return k.suffrage
}
func (k *knowledge) CommittedSuffrage() raftnode.Suffrage { return k.suffrage }

// voters answers vouch calls: true and false are answers, absence is silence.
type voters map[fsm.NodeID]bool

func (v voters) Call(_ context.Context, to fsm.NodeID, _ transport.Family, _ string, _, resp any) error {
	member, reachable := v[to]
	if !reachable {
		return errors.New("unreachable")
	}
	b, err := cbor.Marshal(vouchReply{Member: member})
	if err != nil {
		return err
	}
	return cbor.Unmarshal(b, resp)
}

func (voters) CallAddr(context.Context, string, transport.Family, string, any, any) (transport.Peer, error) {
	return transport.Peer{}, errors.New("unused")
}

func (voters) Handle(transport.Family, string, transport.Handler) {}

func (voters) HandleUpTo(transport.Family, string, int, transport.Handler) {}

func TestAdmission(t *testing.T) {
	c := cluster.NewClusterID()
	self, voter, learner, observer := cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID()
	removed, server, stranger := cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID()
	k := &knowledge{
		view: fsm.View{ClusterID: c, RemovedIDs: []fsm.NodeID{removed}, Members: []fsm.Member{
			{Node: self, Role: fsm.Voter}, {Node: voter, Role: fsm.Voter}, {Node: learner, Role: fsm.Learner, State: fsm.Joining}, {Node: observer, Role: fsm.Observer},
		}},
		suffrage: raftnode.Suffrage{Voters: []fsm.NodeID{self, voter, server}},
	}
	a := NewAdmission(cluster.Identity{Cluster: c, Node: self}, nil, nil)
	defer a.Close()
	for _, node := range []fsm.NodeID{voter, learner, removed, stranger} {
		for _, family := range []transport.Family{transport.FamilyRaft, transport.FamilyControl, transport.FamilyDeploy} {
			err := a.Admit(transport.Peer{Subject: pki.Node(c, node)}, family, methodJoin)
			require.ErrorIs(t, err, &transport.Error{Code: transport.CodeStarting}, "nobody is judged before there is an engine")
		}
	}
	a.Bind(k, voters{})
	const raft, control, deploy = transport.FamilyRaft, transport.FamilyControl, transport.FamilyDeploy
	for name, x := range map[string]struct {
		node   fsm.NodeID
		family transport.Family
		method string
		code   transport.Code // 0: admitted
	}{
		"a voter, raft":                        {voter, raft, "", 0},
		"a voter, control":                     {voter, control, "ping", 0},
		"a joining learner, raft":              {learner, raft, "", 0},
		"a joining learner, deploy":            {learner, deploy, "", 0},
		"an observer, control":                 {observer, control, "ping", 0},
		"an observer, raft":                    {observer, raft, "", transport.CodeNotMember},
		"a server of the library's log, raft":  {server, raft, "", 0},
		"a server of the library's log, pings": {server, control, "ping", 0},
		"a stranger joins":                     {stranger, control, methodJoin, 0},
		"a stranger pings":                     {stranger, control, "ping", transport.CodeNotMember},
		"a stranger proposes":                  {stranger, control, "propose", transport.CodeNotMember},
		"a stranger calls join on deploy":      {stranger, deploy, methodJoin, transport.CodeNotMember},
		"a stranger, raft":                     {stranger, raft, "", transport.CodeNotMember},
		"a removed node joins":                 {removed, control, methodJoin, transport.CodeRemoved},
		"a removed node, raft":                 {removed, raft, "", transport.CodeRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			err := a.Admit(transport.Peer{Subject: pki.Node(c, x.node)}, x.family, x.method)
			if x.code == 0 {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, &transport.Error{Code: x.code})
		})
	}
	agent := transport.Peer{Subject: pki.Subject{Cluster: c, Kind: pki.KindAgent, ID: voter.String()}}
	require.ErrorIs(t, a.Admit(agent, raft, ""), &transport.Error{Code: transport.CodeWrongKind})
}

func TestJoinerTrustsTheVotersOfItsReply(t *testing.T) {
	c, self, voter, learner := cluster.NewClusterID(), cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID()
	a := NewAdmission(cluster.Identity{Cluster: c, Node: self}, nil, nil)
	defer a.Close()
	admit := func(n fsm.NodeID) error {
		return a.Admit(transport.Peer{Subject: pki.Node(c, n)}, transport.FamilyRaft, "")
	}
	require.Error(t, admit(voter), "nobody, before it knows anybody")
	k := &knowledge{}
	a.Bind(k, voters{})
	a.Trust(fsm.View{Members: []fsm.Member{{Node: voter, Role: fsm.Voter}, {Node: learner, Role: fsm.Learner}}})
	require.NoError(t, admit(voter))
	require.Error(t, admit(learner))
	// The first committed configuration ends that trust.
	k.view = fsm.View{ClusterID: c, Members: []fsm.Member{{Node: self, Role: fsm.Learner}}}
	require.Error(t, admit(voter))
}

func TestUnknownPeerNeedsAMajorityOfKnownVoters(t *testing.T) {
	self, a, b, unknown := cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID(), cluster.NewNodeID()
	all := []fsm.NodeID{self, a, b}
	for name, x := range map[string]struct {
		known    []fsm.NodeID
		newest   []fsm.NodeID // in the log, not committed
		answers  voters
		admitted bool
	}{
		"two of three, itself included": {all, nil, voters{a: true}, true},
		"all":                           {all, nil, voters{a: true, b: true}, true},
		"itself alone":                  {all, nil, voters{}, false},
		"the others deny":               {all, nil, voters{a: false, b: false}, false},
		"one confirms, it is no voter":  {[]fsm.NodeID{a, b}, nil, voters{a: true}, false},
		"both, it is no voter":          {[]fsm.NodeID{a, b}, nil, voters{a: true, b: true}, true},
		"no configuration at all":       {nil, nil, voters{}, false},
		"voters of an open change":      {[]fsm.NodeID{self, a, unknown}, all, voters{b: true}, false},
		"despite an open change":        {[]fsm.NodeID{self, a}, all, voters{a: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := cluster.NewClusterID()
				adm := NewAdmission(cluster.Identity{Cluster: c, Node: self}, nil, nil)
				defer adm.Close()
				adm.Bind(&knowledge{
					view: fsm.View{ClusterID: c}, suffrage: raftnode.Suffrage{Voters: x.known}, newest: raftnode.Suffrage{Voters: x.newest},
				}, x.answers)
				peer := transport.Peer{Subject: pki.Node(c, unknown)}
				require.Error(t, adm.Admit(peer, transport.FamilyRaft, ""), "asked first, admitted later")
				synctest.Wait()
				err := adm.Admit(peer, transport.FamilyRaft, "")
				require.Equal(t, x.admitted, err == nil, "%v", err)
				require.Error(t, adm.Admit(peer, transport.FamilyControl, "propose"), "raft alone")
				if x.admitted {
					<-time.After(vouchLasts + time.Second)
					require.Error(t, adm.Admit(peer, transport.FamilyRaft, ""), "a confirmation does not last for ever")
					synctest.Wait()
				}
			})
		})
	}
}

// A learner slept while a new voter joined, and that voter leads when it comes
// back: it must follow a leader it has never heard of. (A voter that sleeps
// stops further changes instead.)
func TestLaggingMemberFollowsALeaderItDoesNotKnow(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(1)
		first := f.leader()
		join := func() *machine {
			leader, m := f.leader(), f.add()
			m.start(false)
			require.NoError(t, m.join(f.invite(leader, m), leader))
			f.active(leader, m)
			return m
		}
		sleeper := join()
		sleeper.stop()
		m := join()
		_, err := m.registrar.Promote(t.Context(), PromoteRequest{Node: m.name}, "the test")
		require.NoError(t, err)
		require.NoError(t, first.node.StepDown(t.Context(), "the test wants the new voter"))
		require.Equal(t, m, f.leader())
		sleeper.start(false)
		_, known := sleeper.node.View().Member(m.id)
		require.False(t, known)
		f.eventually(func() bool { _, known := sleeper.node.View().Member(m.id); return known })
	})
}

func TestSleepingVoterStopsFurtherChanges(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.grow(3)
		<-time.After(time.Second) // the leader hears that all three have stored the last change, or it would permit no other
		f.other().stop()
		leader, m := f.leader(), f.add()
		m.start(false)
		require.NoError(t, m.join(f.invite(leader, m), leader))
		f.active(leader, m)
		_, err := leader.registrar.Promote(t.Context(), PromoteRequest{Node: m.name}, "the test")
		require.ErrorIs(t, err, raftnode.ErrConfigurationMoved)
		x, _ := leader.node.View().Member(m.id)
		require.Equal(t, fsm.Learner, x.Role, "refused, not left pending")
	})
}
