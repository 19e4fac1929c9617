// Tests of Apply, one table per command: what is accepted, what is refused and with which code.

package fsm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApply(t *testing.T) {
	t.Run("InitCluster", testInitCluster)
	t.Run("AddLearner", testAddLearner)
	t.Run("PromoteVoter", testPromoteVoter)
	t.Run("RemoveMember", testRemoveMember)
	t.Run("UpdateMember", testUpdateMember)
	t.Run("AssignRole", testAssignRole)
	t.Run("BumpEpoch", testBumpEpoch)
	t.Run("ReleaseRole", testReleaseRole)
	t.Run("SetMaintenance", testSetMaintenance)
	t.Run("StartExclusive", testStartExclusive)
	t.Run("CompleteExclusive", testCompleteExclusive)
	t.Run("ActivateFeature", testActivateFeature)
}

func testInitCluster(t *testing.T) {
	l := newLab(t)
	for _, c := range everyCommand() {
		if c.Kind() != KindInitCluster {
			l.refuse(RejectUninitialised, c)
		}
	}
	bad := member(1)
	bad.Role = Learner
	l.refuse(RejectInvalid, InitCluster{ClusterID: clusterID(1), Founder: bad})
	bad = member(1)
	bad.State = Joining
	l.refuse(RejectInvalid, InitCluster{ClusterID: clusterID(1), Founder: bad})

	res := l.must(InitCluster{ClusterID: clusterID(1), Name: "yard", Founder: member(1)})
	require.Equal(t, Result{Config: 1}, res)
	v := l.s.View()
	require.True(t, v.Initialised())
	require.Equal(t, FirstGeneration, v.Generation)
	require.Equal(t, Normal, v.Maintenance)
	require.Len(t, v.Members, 1)
	require.Equal(t, Voter, v.Members[0].Role)
	require.Equal(t, Active, v.Members[0].State)
	l.refuse(RejectInitialised, InitCluster{ClusterID: clusterID(2), Founder: member(2)})
}

func testAddLearner(t *testing.T) {
	l := newLab(t).found()
	l.refuse(RejectConfig, AddLearner{ExpectedConfig: 2, Member: learner(2)})
	res := l.must(AddLearner{ExpectedConfig: 1, Member: learner(2)})
	require.Equal(t, Result{Config: 2}, res)
	m, ok := l.s.View().Member(node(2))
	require.True(t, ok)
	require.Equal(t, Joining, m.State)
	require.Equal(t, Learner, m.Role)
	l.refuse(RejectMember, AddLearner{ExpectedConfig: 2, Member: learner(2)})

	voter := member(3)
	voter.Role = Voter
	l.refuse(RejectInvalid, AddLearner{ExpectedConfig: 2, Member: voter}) // learner first (§63)

	observer := member(3)
	observer.Role = Observer
	l.must(AddLearner{ExpectedConfig: 2, Member: observer})

	l.must(RemoveMember{ExpectedConfig: 3, Node: node(2), Force: true})
	l.refuse(RejectRemoved, AddLearner{ExpectedConfig: 4, Member: learner(2)})

	for n := uint64(10); len(l.s.body.Config.Members) < MaxMembers; n++ {
		l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(n)})
	}
	l.refuse(RejectBound, AddLearner{ExpectedConfig: l.config(), Member: learner(9)})
}

func testPromoteVoter(t *testing.T) {
	l := newLab(t).found()
	l.refuse(RejectMember, PromoteVoter{ExpectedConfig: 1, Node: node(2)})
	l.must(AddLearner{ExpectedConfig: 1, Member: learner(2)})
	l.refuse(RejectMember, PromoteVoter{ExpectedConfig: 2, Node: node(2)}) // Joining
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: Active})
	l.refuse(RejectConfig, PromoteVoter{ExpectedConfig: 2, Node: node(2)})
	require.Equal(t, Result{Config: 4}, l.must(PromoteVoter{ExpectedConfig: 3, Node: node(2)}))
	m, _ := l.s.View().Member(node(2))
	require.Equal(t, Voter, m.Role)
	l.refuse(RejectMember, PromoteVoter{ExpectedConfig: 4, Node: node(2)}) // a voter already

	observer := member(3)
	observer.Role = Observer
	l.must(AddLearner{ExpectedConfig: 4, Member: observer})
	l.must(UpdateMember{Node: node(3), ExpectedIncarnation: inc(3), State: Active})
	l.refuse(RejectMember, PromoteVoter{ExpectedConfig: 6, Node: node(3)})
}

func testRemoveMember(t *testing.T) {
	l := fleet(t)
	l.assign(SchedulerLeader, 2)
	x := l.must(StartExclusiveOperation{Scope: TrustRootRotation, Owner: node(2), Incarnation: inc(2)})
	l.refuse(RejectMember, RemoveMember{ExpectedConfig: l.config(), Node: node(2)}) // Active, not forced
	l.refuse(RejectMember, RemoveMember{ExpectedConfig: l.config(), Node: node(8), Force: true})
	l.refuse(RejectConfig, RemoveMember{ExpectedConfig: l.config() - 1, Node: node(2), Force: true})
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: Draining})
	l.refuse(RejectMember, RemoveMember{ExpectedConfig: l.config(), Node: node(2)})
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: Leaving})
	l.must(RemoveMember{ExpectedConfig: l.config(), Node: node(2)})

	v := l.s.View()
	_, ok := v.Member(node(2))
	require.False(t, ok)
	require.True(t, v.Tombstoned(node(2)))
	require.True(t, v.Role(SchedulerLeader).Vacant())
	requireAbandoned(t, l, TrustRootRotation, x.Epoch)
	rel, ok := v.Release(SchedulerLeader)
	require.True(t, ok)
	require.Equal(t, CodeMemberRemoved, rel.Code)
	l.refuse(RejectNotOwner, CompleteExclusiveOperation{Scope: TrustRootRotation, Owner: node(2), Incarnation: inc(2), Epoch: x.Epoch})

	l.must(RemoveMember{ExpectedConfig: l.config(), Node: node(3), Force: true})
	l.refuse(RejectMember, RemoveMember{ExpectedConfig: l.config(), Node: node(1), Force: true}) // the only voter
}

func testUpdateMember(t *testing.T) {
	l := fleet(t)
	first := l.assign(SchedulerLeader, 2)
	l.assign(ReleaseCoordinator, 3)
	x := l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2)})
	up := UpdateMember{Node: node(2), ExpectedIncarnation: inc(2)}

	before := l.config()
	require.True(t, l.must(up).NoOp)
	require.Equal(t, before, l.config())
	l.refuse(RejectMember, UpdateMember{Node: node(9), ExpectedIncarnation: inc(2)})
	l.refuse(RejectIncarnation, UpdateMember{Node: node(2), ExpectedIncarnation: inc(7), Name: "late"})
	l.refuse(RejectInvalid, UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: Removed})

	up.Name, up.Endpoint = "renamed", "10.9.9.9:7443"
	require.Equal(t, before+1, l.must(up).Config)
	m, _ := l.s.View().Member(node(2))
	require.Equal(t, "renamed", m.Name)
	require.Equal(t, Endpoint("10.9.9.9:7443"), m.Endpoint)
	require.Equal(t, Active, m.State, "zero fields stay")
	require.True(t, l.s.View().Role(SchedulerLeader).HeldBy(node(2), inc(2)), "the same process keeps its roles")

	// A restart: the new process inherits nothing (§13).
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), Incarnation: inc(22)})
	v := l.s.View()
	require.True(t, v.Role(SchedulerLeader).Vacant())
	require.Equal(t, first.Epoch, v.Role(SchedulerLeader).Epoch, "a vacant role keeps its epoch")
	requireAbandoned(t, l, GlobalGcCoordination, x.Epoch)
	require.True(t, v.Role(ReleaseCoordinator).HeldBy(node(3), inc(3)), "another node's role is untouched")
	rel, _ := v.Release(SchedulerLeader)
	require.Equal(t, Release{Role: SchedulerLeader, Epoch: first.Epoch, Node: node(2), Incarnation: inc(2),
		Code: CodeIncarnationEnded, Reason: rel.Reason}, rel)
	l.refuse(RejectIncarnation, UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), Incarnation: inc(23)})
}

func testAssignRole(t *testing.T) {
	l := newLab(t).found().voter(2)
	cmd := AssignRole{Role: SchedulerLeader, Owner: node(1), Incarnation: inc(1)}
	l.refuse(RejectStaleLeader, cmd) // no leadership yet
	l.elect(1)
	old := l.lead()
	cmd.Leader = LeaderEpoch{Term: old.Term, Epoch: old.Epoch + 1}
	l.refuse(RejectStaleLeader, cmd)
	cmd.Leader = LeaderEpoch{Term: old.Term + 1, Epoch: old.Epoch}
	l.refuse(RejectStaleLeader, cmd)
	cmd.Leader = old
	cmd.ExpectedEpoch = 5
	require.Zero(t, l.refuse(RejectStaleEpoch, cmd).Current)
	cmd.ExpectedEpoch = 0
	l.refuse(RejectMember, AssignRole{Leader: old, Role: SchedulerLeader, Owner: node(9), Incarnation: inc(9)})
	l.refuse(RejectIncarnation, AssignRole{Leader: old, Role: SchedulerLeader, Owner: node(1), Incarnation: inc(9)})

	res := l.must(cmd)
	require.Equal(t, l.s.body.Epoch, res.Epoch)
	require.Equal(t, RoleGrant{Role: SchedulerLeader, Epoch: res.Epoch, Owner: node(1), Incarnation: inc(1)}, l.s.View().Role(SchedulerLeader))
	require.Equal(t, res.Epoch, l.refuse(RejectStaleEpoch, cmd).Current)

	l.must(AddLearner{ExpectedConfig: l.config(), Member: learner(3)})
	l.must(UpdateMember{Node: node(3), ExpectedIncarnation: inc(3), State: Active})
	l.refuse(RejectMember, AssignRole{Leader: old, Role: ReleaseCoordinator, Owner: node(3), Incarnation: inc(3)}) // learner
	l.must(UpdateMember{Node: node(2), ExpectedIncarnation: inc(2), State: Draining})
	l.refuse(RejectMember, AssignRole{Leader: old, Role: ReleaseCoordinator, Owner: node(2), Incarnation: inc(2)})

	l.elect(2)
	l.refuse(RejectStaleLeader, AssignRole{Leader: old, Role: SchedulerLeader, ExpectedEpoch: res.Epoch, Owner: node(1), Incarnation: inc(1)})
}

func testBumpEpoch(t *testing.T) {
	t.Run("leadership", func(t *testing.T) {
		l := newLab(t).found().voter(2)
		l.term = 5
		begin := BumpEpoch{Term: 5, Node: node(1), Incarnation: inc(1)}
		l.refuse(RejectStaleLeader, BumpEpoch{Term: 4, Node: node(1), Incarnation: inc(1)})
		l.refuse(RejectStaleLeader, BumpEpoch{Term: 6, Node: node(1), Incarnation: inc(1)})
		l.refuse(RejectStaleEpoch, BumpEpoch{Term: 5, ExpectedEpoch: 1, Node: node(1), Incarnation: inc(1)})
		l.refuse(RejectIncarnation, BumpEpoch{Term: 5, Node: node(1), Incarnation: inc(8)})
		l.refuse(RejectMember, BumpEpoch{Term: 5, Node: node(8), Incarnation: inc(8)})
		first := l.must(begin)
		require.Equal(t, LeaderEpoch{Term: 5, Epoch: first.Epoch}, l.lead())

		again := l.must(begin)
		require.True(t, again.NoOp)
		require.Equal(t, first.Epoch, again.Epoch)
		l.refuse(RejectStaleLeader, BumpEpoch{Term: 5, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(2)})

		l.term = 4 // a log whose terms fall is not believed
		l.refuse(RejectStaleLeader, BumpEpoch{Term: 4, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(2)})

		l.term = 6
		l.refuse(RejectStaleLeader, BumpEpoch{Term: 5, ExpectedEpoch: first.Epoch, Node: node(1), Incarnation: inc(1)}) // appended by the next leader
		second := l.must(BumpEpoch{Term: 6, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(2)})
		require.Greater(t, second.Epoch, first.Epoch)
		v := l.s.View()
		require.Equal(t, node(2), v.Leader)
		require.Equal(t, inc(2), v.LeaderInc)
	})
	t.Run("role", func(t *testing.T) {
		l := fleet(t)
		first := l.assign(SchedulerLeader, 2)
		bump := BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(2)}
		l.refuse(RejectStaleEpoch, BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: first.Epoch - 1, Node: node(2), Incarnation: inc(2)})
		l.refuse(RejectStaleEpoch, BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: first.Epoch + 1, Node: node(2), Incarnation: inc(2)})
		l.refuse(RejectNotOwner, BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: first.Epoch, Node: node(1), Incarnation: inc(1)})
		l.refuse(RejectNotOwner, BumpEpoch{Role: SchedulerLeader, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(9)})
		l.refuse(RejectInvalid, BumpEpoch{Role: SchedulerLeader, Term: 1, ExpectedEpoch: first.Epoch, Node: node(2), Incarnation: inc(2)})
		second := l.must(bump)
		require.Greater(t, second.Epoch, first.Epoch)
		require.True(t, l.s.View().Role(SchedulerLeader).HeldBy(node(2), inc(2)))
		l.refuse(RejectStaleEpoch, bump)

		// After a change of leader the old grant waits to be assigned anew.
		l.elect(3)
		bump.ExpectedEpoch = second.Epoch
		require.Equal(t, l.lead().Epoch, l.refuse(RejectStaleLeader, bump).Current)
	})
}

func testReleaseRole(t *testing.T) {
	l := fleet(t)
	g := l.assign(SchedulerLeader, 2)
	rel := ReleaseRole{Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Node: node(2), Incarnation: inc(2), Code: "FY-ROLE-099", Reason: "poison row"}
	bad := rel
	bad.ExpectedEpoch--
	l.refuse(RejectStaleEpoch, bad)
	bad = rel
	bad.Node, bad.Incarnation = node(1), inc(1)
	l.refuse(RejectNotOwner, bad)
	bad = rel
	bad.Incarnation = inc(9)
	l.refuse(RejectNotOwner, bad)
	bad = rel
	bad.Leader = LeaderEpoch{Term: 1, Epoch: 1}
	l.refuse(RejectStaleLeader, bad)

	counter := l.s.body.Epoch
	require.Equal(t, g.Epoch, l.must(rel).Epoch)
	require.Equal(t, counter, l.s.body.Epoch, "a release takes no epoch")
	v := l.s.View()
	require.Equal(t, RoleGrant{Role: SchedulerLeader, Epoch: g.Epoch}, v.Role(SchedulerLeader))
	got, _ := v.Release(SchedulerLeader)
	require.Equal(t, Release{Role: SchedulerLeader, Epoch: g.Epoch, Node: node(2), Incarnation: inc(2), Code: "FY-ROLE-099", Reason: "poison row"}, got)
	l.refuse(RejectNotOwner, rel)

	// By the leader, and only the last release is kept.
	g = l.assign(SchedulerLeader, 3)
	l.must(ReleaseRole{Leader: l.lead(), Role: SchedulerLeader, ExpectedEpoch: g.Epoch, Node: node(3), Incarnation: inc(3), Code: "FY-ROLE-022", Reason: "silent"})
	require.Len(t, l.s.View().Releases, 1)
	got, _ = l.s.View().Release(SchedulerLeader)
	require.Equal(t, g.Epoch, got.Epoch)
}

func testSetMaintenance(t *testing.T) {
	l := newLab(t).found()
	res := l.must(SetMaintenance{State: Normal})
	require.True(t, res.NoOp)
	require.Zero(t, res.Epoch)
	res = l.must(SetMaintenance{State: NoScheduling})
	require.Equal(t, Epoch(1), res.Epoch)
	require.Equal(t, Epoch(1), l.refuse(RejectStaleEpoch, SetMaintenance{State: Normal}).Current)
	require.True(t, l.must(SetMaintenance{ExpectedEpoch: 1, State: NoScheduling}).NoOp)
	require.Equal(t, Epoch(2), l.must(SetMaintenance{ExpectedEpoch: 1, State: Normal}).Epoch)
}

func testStartExclusive(t *testing.T) {
	l := fleet(t)
	start := StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2)}
	l.refuse(RejectMember, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(9), Incarnation: inc(9)})
	l.refuse(RejectIncarnation, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(9)})
	res := l.must(start)
	require.Equal(t, []ExclusiveLease{{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2), Epoch: res.Epoch}}, l.s.View().Exclusive)
	rej := l.refuse(RejectHeld, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1)})
	require.Equal(t, res.Epoch, rej.Current, "the holder's epoch")
	l.must(StartExclusiveOperation{Scope: TrustRootRotation, Owner: node(2), Incarnation: inc(2)}) // another scope
	l.must(UpdateMember{Node: node(3), ExpectedIncarnation: inc(3), State: Draining})
	l.must(CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2), Epoch: res.Epoch})
	l.refuse(RejectMember, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(3), Incarnation: inc(3)})
	l.refuse(RejectStaleEpoch, StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2), Abandoned: res.Epoch})
}

func testCompleteExclusive(t *testing.T) {
	l := fleet(t)
	res := l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2)})
	done := CompleteExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(2), Incarnation: inc(2), Epoch: res.Epoch}
	bad := done
	bad.Epoch++
	require.Equal(t, res.Epoch, l.refuse(RejectStaleEpoch, bad).Current)
	bad = done
	bad.Owner, bad.Incarnation = node(1), inc(1)
	l.refuse(RejectNotOwner, bad)
	bad = done
	bad.Incarnation = inc(9)
	l.refuse(RejectNotOwner, bad)
	l.must(done)
	require.Empty(t, l.s.View().Exclusive)
	l.refuse(RejectStaleEpoch, done)

	// The scope is free again, and the earlier holder's epoch no longer ends it.
	l.must(StartExclusiveOperation{Scope: GlobalGcCoordination, Owner: node(1), Incarnation: inc(1)})
	l.refuse(RejectStaleEpoch, done)
}

func testActivateFeature(t *testing.T) {
	l := newLab(t).found().voter(2)
	l.refuse(RejectStaleEpoch, ActivateFeature{Expected: 1, Feature: 2})
	l.refuse(RejectInvalid, ActivateFeature{Expected: 0, Feature: 2})
	for f := FeatureVersion(1); f <= 3; f++ {
		l.must(ActivateFeature{Expected: f - 1, Feature: f})
	}
	l.refuse(RejectUnsupported, ActivateFeature{Expected: 3, Feature: 4})
	l.must(UpdateMember{Node: node(1), ExpectedIncarnation: inc(1), Protocol: VersionRange{Min: 1, Max: 4}})
	l.refuse(RejectUnsupported, ActivateFeature{Expected: 3, Feature: 4}) // node 2 does not
	l.refuse(RejectUnsupported, UpdateMember{Node: node(1), ExpectedIncarnation: inc(1), Protocol: VersionRange{Min: 1, Max: 2}})
	old := learner(5)
	old.Protocol.Max = 2
	l.refuse(RejectUnsupported, AddLearner{ExpectedConfig: l.config(), Member: old})
	require.Equal(t, FeatureVersion(3), l.s.View().Feature)
}
