// Tests of rules that hold across commands: replay, staleness, monotonic counters, member life.

package fsm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplayWindow(t *testing.T) {
	l := fleet(t)
	p := Proposal{Request: number[RequestID](5000), Command: AssignRole{Leader: l.lead(), Role: SchedulerLeader, Owner: node(1), Incarnation: inc(1)}}
	first, err := l.s.Apply(100, l.term, p)
	require.NoError(t, err)
	require.False(t, first.Replay)
	before := l.s.Hash()
	again, err := l.s.Apply(101, l.term, p)
	require.NoError(t, err)
	require.True(t, again.Replay)
	again.Replay = false
	require.Equal(t, first, again)
	require.Equal(t, before, l.s.Hash())
	require.Equal(t, uint64(101), l.s.View().Index)

	// It outlives later commits and a snapshot, until MaxRecent newer requests were accepted.
	for i := range MaxRecent - 1 {
		l.must(SetMaintenance{ExpectedEpoch: l.s.body.MaintenanceEpoch, State: Maintenance(1 + (i+1)%2)})
	}
	snap, err := l.s.EncodeSnapshot()
	require.NoError(t, err)
	restored, err := DecodeSnapshot(snap)
	require.NoError(t, err)
	again, err = restored.Apply(1000, l.term, p)
	require.NoError(t, err)
	require.True(t, again.Replay)
	require.Len(t, l.s.body.Recent, MaxRecent)

	l.must(SetMaintenance{ExpectedEpoch: l.s.body.MaintenanceEpoch, State: ReadOnly})
	require.Len(t, l.s.body.Recent, MaxRecent)
	_, err = l.s.Apply(1001, l.term, p)
	var rej *Rejection
	require.ErrorAs(t, err, &rej)
	require.Equal(t, RejectStaleEpoch, rej.Code, "forgotten, and still harmless")
}

func TestRejectedRequestIsJudgedAnew(t *testing.T) {
	l := newLab(t).found()
	p := Proposal{Request: number[RequestID](5000), Command: AddLearner{ExpectedConfig: 2, Member: learner(3)}}
	_, err := l.s.Apply(10, 1, p)
	require.Error(t, err)
	l.must(AddLearner{ExpectedConfig: 1, Member: learner(2)})
	res, err := l.s.Apply(11, 1, p)
	require.NoError(t, err)
	require.False(t, res.Replay)
}

func TestPositionAdvancesOnRejection(t *testing.T) {
	l := newLab(t).found()
	_, err := l.s.Apply(42, 7, propose(AddLearner{Member: learner(3)}))
	require.Error(t, err)
	require.Equal(t, uint64(42), l.s.View().Index)
	require.Equal(t, uint64(7), l.s.View().Term)
}

// TestStaleCommandRefused: every command that depends on earlier state is
// refused once that state has moved on, also under a new request id.
func TestStaleCommandRefused(t *testing.T) {
	l := fleet(t)
	l.assign(SchedulerLeader, 2)
	l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(4)})
	l.must(UpdateMember{Node: node(4), ExpectedIncarnation: inc(4), State: Active})
	x := l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1)})
	g := l.s.View().Role(SchedulerLeader)
	stale := []struct {
		name string
		cmd  Command
		code RejectCode
	}{
		{"AddLearner", AddLearner{ExpectedConfig: l.config(), Member: learner(5)}, RejectConfig},
		{"PromoteVoter", PromoteVoter{ExpectedConfig: l.config(), Node: node(4)}, RejectConfig},
		{"RemoveMember", RemoveMember{ExpectedConfig: l.config(), Node: node(3), Force: true}, RejectConfig},
		{"UpdateMember", UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), Incarnation: inc(22)}, RejectIncarnation},
		{"AssignRole", AssignRole{Leader: l.lead(), Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Owner: node(1), Incarnation: inc(1)}, RejectStaleLeader},
		{"BumpEpoch leadership", BumpEpoch{Term: l.term, ExpectedEpoch: l.lead().Epoch, Node: node(3), Incarnation: inc(3)}, RejectStaleLeader},
		{"BumpEpoch role", BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Node: node(2), Incarnation: inc(2)}, RejectNotOwner},
		{"ReleaseRole", ReleaseRole{Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Node: node(2), Incarnation: inc(2)}, RejectNotOwner},
		{"SetMaintenance", SetMaintenance{State: ReadOnly}, RejectStaleEpoch},
		{"CompleteExclusive", CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1), Epoch: x.Epoch}, RejectStaleEpoch},
		{"ActivateFeature", ActivateFeature{Feature: 1}, RejectStaleEpoch},
	}
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), Incarnation: inc(23)})
	l.must(SetMaintenance{State: NoScheduling})
	l.must(CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1), Epoch: x.Epoch})
	l.must(ActivateFeature{Feature: 1})
	l.elect(1)
	for _, c := range stale {
		t.Run(c.name, func(t *testing.T) { l.t = t; l.refuse(c.code, c.cmd) })
	}
}

func TestMemberStateTransitions(t *testing.T) {
	legal := map[[2]MemberState]bool{
		{Joining, Active}: true, {Active, Draining}: true, {Draining, Leaving}: true, {Draining, Active}: true,
	}
	reach := map[MemberState][]MemberState{Joining: {}, Active: {Active}, Draining: {Active, Draining}, Leaving: {Active, Draining, Leaving}}
	for from, path := range reach {
		for to := Joining; to <= Removed; to++ {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				l := newLab(t).found()
				l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(2)})
				for _, s := range path {
					l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: s})
				}
				c := UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: to}
				switch {
				case to == Removed || to == Joining:
					l.refuse(RejectInvalid, c)
				case from == to:
					require.True(t, l.must(c).NoOp)
				case legal[[2]MemberState{from, to}]:
					l.must(c)
					m, _ := l.s.View().Member(node(2))
					require.Equal(t, to, m.State)
				default:
					l.refuse(RejectMember, c)
				}
				remove := RemoveMember{ExpectedConfig: l.config(), Node: node(2)}
				if m, _ := l.s.View().Member(node(2)); m.State != Leaving {
					l.refuse(RejectMember, remove)
					remove.Force = true
				}
				l.must(remove)
				require.True(t, l.s.View().Tombstoned(node(2)))
			})
		}
	}
}

func TestClusterIDImmutable(t *testing.T) {
	l := fleet(t)
	for _, c := range everyCommand() {
		_, _ = l.try(c) // most are refused; none may touch the id
		require.Equal(t, clusterID(1), l.s.View().ClusterID, "%s", c.Kind())
		require.Equal(t, FirstGeneration, l.s.View().Generation, "%s", c.Kind())
	}
}

// TestClusterNameIsLabelOnly: two clusters that differ in name alone accept and
// refuse exactly the same commands with the same results.
func TestClusterNameIsLabelOnly(t *testing.T) {
	a, b := newLab(t), newLab(t)
	a.must(InitCluster{ClusterID: clusterID(1), Name: "yard", Founder: member(1)})
	b.must(InitCluster{ClusterID: clusterID(1), Name: "another", Founder: member(1)})
	for _, c := range everyCommand() {
		resA, errA := a.try(c)
		resB, errB := b.try(c)
		require.Equal(t, resA, resB)
		require.Equal(t, errA, errB)
	}
	require.NotEqual(t, a.s.Hash(), b.s.Hash())
	b.s.body.ClusterName = "yard"
	require.Equal(t, a.s.Hash(), b.s.Hash())
}

// TestIncarnationFreshPerStart: a process that starts again under a new
// incarnation owns nothing, and the old process can do nothing any more.
func TestIncarnationFreshPerStart(t *testing.T) {
	l := fleet(t)
	g := l.assign(SchedulerLeader, 2)
	for start := uint64(200); start < 203; start++ {
		m, _ := l.s.View().Member(node(2))
		l.must(UpdateMember{Node: node(2), ExpectedIncarnation: m.Incarnation, Incarnation: inc(start)})
		for _, r := range Roles() {
			require.False(t, l.s.View().Role(r).HeldBy(node(2), inc(start)))
		}
		for _, c := range []Command{
			UpdateMember{Node: node(2), ExpectedIncarnation: m.Incarnation, Name: "late"},
			StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: m.Incarnation},
			AssignRole{Leader: l.lead(), Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Owner: node(2), Incarnation: m.Incarnation},
		} {
			l.refuse(RejectIncarnation, c)
		}
		g = l.assign(SchedulerLeader, 2)
	}
}

func TestSchedulerEpochFromRole(t *testing.T) {
	l := fleet(t)
	for _, r := range Roles() {
		res := l.assign(r, 1)
		e, ok := l.s.View().Role(r).SchedulerEpoch()
		require.Equal(t, r == SchedulerLeader, ok)
		require.Equal(t, SchedulerEpoch(res.Epoch), e)
	}
	_, ok := RoleGrant{Role: SchedulerLeader, Epoch: 4}.SchedulerEpoch()
	require.False(t, ok, "a vacant role has no scheduler epoch")
}

func TestMaintenanceEpochMonotonic(t *testing.T) {
	l := fleet(t)
	last := l.s.View().MaintenanceEpoch
	for i := range 20 {
		if i%3 == 0 {
			l.assign(SchedulerLeader, uint64(1+i%2))
		}
		res := l.must(SetMaintenance{ExpectedEpoch: last, State: Maintenance(1 + i%5)})
		if res.NoOp {
			require.Equal(t, last, res.Epoch)
			continue
		}
		require.Greater(t, res.Epoch, last)
		last = res.Epoch
	}
}

func TestFeatureVersionMonotonic(t *testing.T) {
	l := newLab(t).found()
	l.must(ActivateFeature{Expected: 0, Feature: 1})
	l.must(ActivateFeature{Expected: 1, Feature: 2})
	for f := FeatureVersion(0); f < 2; f++ {
		for e := FeatureVersion(0); e < 4; e++ {
			_, err := l.try(ActivateFeature{Expected: e, Feature: f})
			require.Error(t, err)
			require.Equal(t, FeatureVersion(2), l.s.View().Feature)
		}
	}
}

func TestViewIsACopy(t *testing.T) {
	l := fleet(t)
	l.assign(SchedulerLeader, 2)
	l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1)})
	before := l.s.Hash()
	v, c := l.s.View(), l.s.Clone()
	v.Members[0].Name, v.Roles[0].Epoch, v.Exclusive[0].Epoch = "changed", 99, 99
	c.body.Config.Members[0].Name, c.body.Recent[0].Result.Epoch = "changed", 99
	require.Equal(t, before, l.s.Hash())
	require.NotEqual(t, before, c.Hash())
}
