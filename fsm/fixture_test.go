// Fixtures: fixed ids, a cluster in the making, one valid proposal of every kind.

package fsm

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// number makes an id that is easy to recognise and sorts by n.
func number[T ~[16]byte](n uint64) T {
	var id [16]byte
	binary.BigEndian.PutUint64(id[8:], n)
	return T(id)
}

func node(n uint64) NodeID         { return number[NodeID](n) }
func inc(n uint64) IncarnationID   { return number[IncarnationID](n) }
func clusterID(n uint64) ClusterID { return number[ClusterID](n) }

func member(n uint64) Member {
	return Member{
		Node: node(n), Incarnation: inc(n), Name: fmt.Sprintf("node-%d", n),
		Endpoint: Endpoint(fmt.Sprintf("10.0.0.%d:7443", n)), Agents: Endpoint(fmt.Sprintf("10.0.0.%d:7444", n)),
		Protocol: VersionRange{Min: 1, Max: 3}, Build: "test",
	}
}

func learner(n uint64) Member {
	m := member(n)
	m.Role = Learner
	return m
}

// lab is a state with the plumbing of a log around it.
type lab struct {
	t     require.TestingT
	s     *State
	index uint64
	term  uint64
	req   uint64
}

func newLab(t require.TestingT) *lab { return &lab{t: t, s: NewState(), term: 1} }

func (l *lab) try(c Command) (Result, error) {
	l.index++
	l.req++
	return l.s.Apply(l.index, l.term, Proposal{Request: number[RequestID](l.req), Command: c})
}

func (l *lab) must(c Command) Result {
	res, err := l.try(c)
	require.NoError(l.t, err)
	return res
}

// refuse requires a rejection with the code, and that the state did not change.
func (l *lab) refuse(code RejectCode, c Command) *Rejection {
	before := encodeBody(l.s.body)
	res, err := l.try(c)
	require.Error(l.t, err)
	var rej *Rejection
	require.ErrorAs(l.t, err, &rej)
	require.Equal(l.t, code, rej.Code, "%s", rej)
	require.NotEmpty(l.t, rej.Message)
	require.Zero(l.t, res)
	require.Equal(l.t, before, encodeBody(l.s.body))
	require.Equal(l.t, l.s.body.Config.Version, rej.Config)
	return rej
}

func (l *lab) config() ConfigVersion { return l.s.body.Config.Version }
func (l *lab) lead() LeaderEpoch     { return l.s.body.Leader.Epoch }

func (l *lab) found() *lab {
	l.must(InitCluster{ClusterID: clusterID(1), Name: "yard", Founder: member(1)})
	return l
}

func (l *lab) voter(n uint64) *lab {
	l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(n)})
	l.must(UpdateMember{Node: node(n), ExpectedIncarnation: inc(n), State: Active})
	l.must(PromoteVoter{ExpectedConfig: l.config(), Node: node(n)})
	return l
}

// elect begins a leadership of node n in the next term.
func (l *lab) elect(n uint64) Result {
	l.term++
	m, _ := l.s.View().Member(node(n))
	return l.must(BumpEpoch{Term: l.term, ExpectedEpoch: l.lead().Epoch, Node: m.Node, Incarnation: m.Incarnation})
}

func (l *lab) assign(r Role, n uint64) Result {
	m, _ := l.s.View().Member(node(n))
	return l.must(AssignRole{Leader: l.lead(), Role: r, ExpectedEpoch: l.s.View().Role(r).Epoch, Owner: m.Node, Incarnation: m.Incarnation})
}

// fleet is three voters, led by node 1.
func fleet(t *testing.T) *lab {
	l := newLab(t).found().voter(2).voter(3)
	l.elect(1)
	return l
}

// everyCommand is one statically valid command of each kind, with every field set.
func everyCommand() []Command {
	lead := LeaderEpoch{Term: 2, Epoch: 3}
	return []Command{
		InitCluster{ClusterID: clusterID(1), Name: "yard", Founder: member(1)},
		AddLearner{ExpectedConfig: 1, Member: learner(2)},
		PromoteVoter{ExpectedConfig: 2, Node: node(2)},
		RemoveMember{ExpectedConfig: 3, Node: node(2), Force: true},
		UpdateMember{Node: node(1), ExpectedIncarnation: inc(1), Incarnation: inc(9), Name: "new", State: Draining,
			Endpoint: "[::1]:7443", Agents: "host.example:7444", Protocol: VersionRange{Min: 1, Max: 4}, Build: "v2"},
		AssignRole{Leader: lead, Role: SchedulerLeader, ExpectedEpoch: 4, Owner: node(1), Incarnation: inc(1)},
		BumpEpoch{Term: 2, ExpectedEpoch: 3, Node: node(1), Incarnation: inc(1)},
		ReleaseRole{Leader: lead, Role: ReleaseCoordinator, ExpectedEpoch: 5, Node: node(1), Incarnation: inc(1), Code: "FY-ROLE-099", Reason: "because"},
		SetMaintenance{ExpectedEpoch: 6, State: FullMaintenance},
		StartExclusiveOperation{Scope: ClusterMigration, Owner: node(1), Incarnation: inc(1), Abandoned: 6},
		CompleteExclusiveOperation{Scope: TrustRootRotation, Owner: node(1), Incarnation: inc(1), Epoch: 7},
		ActivateFeature{Expected: 1, Feature: 2},
	}
}

func propose(c Command) Proposal { return Proposal{Request: number[RequestID](77), Command: c} }
