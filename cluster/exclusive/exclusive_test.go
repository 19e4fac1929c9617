// Exclusive operations against the standalone engine: who may begin, take over and complete one.

package exclusive

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
)

// node is a standalone node whose cluster has a second member, a process without an engine.
type node struct {
	*local.Backend
	other fsm.Member
	// answered, when set, replaces the answer of a proposal that was carried out.
	answered func(cluster.Commit, error) (cluster.Commit, error)
}

func newNode(t *testing.T) *node {
	t.Helper()
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	n := &node{Backend: b}
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	self := n.Self()
	n.must(t, fsm.BumpEpoch{Term: 1, Node: self.Node, Incarnation: self.Incarnation})
	n.other = fsm.Member{Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID(), Name: "other", Role: fsm.Learner, Endpoint: "127.0.0.1:7443", Protocol: fsm.VersionRange{Min: 1, Max: 1}}
	n.must(t, fsm.AddLearner{ExpectedConfig: n.View().Config, Member: n.other})
	n.must(t, fsm.UpdateMember{Node: n.other.Node, ExpectedIncarnation: n.other.Incarnation, State: fsm.Active})
	n.must(t, fsm.PromoteVoter{ExpectedConfig: n.View().Config, Node: n.other.Node})
	return n
}

func (n *node) must(t *testing.T, c fsm.Command) cluster.Commit {
	t.Helper()
	commit, err := n.Backend.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(t, err)
	return commit
}

func (n *node) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	commit, err := n.Backend.Propose(ctx, p)
	if n.answered != nil {
		return n.answered(commit, err)
	}
	return commit, err
}

// otherBegins has the other member hold the scope.
func (n *node) otherBegins(t *testing.T, s fsm.Scope) fsm.Epoch {
	t.Helper()
	return n.must(t, fsm.StartExclusiveOperation{Scope: s, Owner: n.other.Node, Incarnation: n.other.Incarnation}).Epoch
}

// otherRestarts replaces the other member's process.
func (n *node) otherRestarts(t *testing.T) {
	t.Helper()
	was := n.other.Incarnation
	n.other.Incarnation = cluster.NewIncarnationID()
	n.must(t, fsm.UpdateMember{Node: n.other.Node, ExpectedIncarnation: was, Incarnation: n.other.Incarnation})
}

func (n *node) state(s fsm.Scope) State {
	st, _ := StateOf(n.View().View, s)
	return st
}

// assign gives a role to a member.
func (n *node) assign(t *testing.T, r fsm.Role, owner fsm.NodeID, inc fsm.IncarnationID) fsm.Epoch {
	t.Helper()
	v := n.View()
	return n.must(t, fsm.AssignRole{Leader: v.LeaderEpoch, Role: r, ExpectedEpoch: v.Role(r).Epoch, Owner: owner, Incarnation: inc}).Epoch
}

func TestStartComplete(t *testing.T) {
	n := newNode(t)
	ops := New(n, nil)
	op, err := ops.Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
	require.NoError(t, err)
	require.NoError(t, op.Check())
	require.Equal(t, n.View().Epoch, op.Epoch(), "the newest epoch")
	require.Equal(t, Held, n.state(fsm.GlobalGcCoordination))

	_, err = ops.Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
	require.ErrorIs(t, err, ErrHeld, "this process")
	mine, held := ops.Current(fsm.GlobalGcCoordination)
	require.True(t, held)
	require.Same(t, op, mine)
	_, err = n.Backend.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(),
		Command: fsm.StartExclusiveOperation{Scope: fsm.GlobalGcCoordination, Owner: n.other.Node, Incarnation: n.other.Incarnation}})
	require.ErrorIs(t, err, ErrHeld, "another process")

	require.NoError(t, op.Complete(t.Context()))
	require.NoError(t, op.Complete(t.Context()), "completing twice")
	require.ErrorIs(t, op.Check(), cluster.ErrFenced)
	require.Equal(t, Free, n.state(fsm.GlobalGcCoordination))
	_, held = ops.Current(fsm.GlobalGcCoordination)
	require.False(t, held)

	began := n.otherBegins(t, fsm.GlobalGcCoordination)
	require.Greater(t, began, op.Epoch())
	_, err = ops.Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorIs(t, op.Check(), cluster.ErrFenced)
}

// TestAbandonedIsUnknown: an operation whose process ended is neither free nor
// finished; its successor may do nothing before it has inspected it (§245, §246).
func TestAbandonedIsUnknown(t *testing.T) {
	n := newNode(t)
	ops := New(n, nil)
	scope := fsm.GlobalGcCoordination
	old := n.otherBegins(t, scope)
	n.otherRestarts(t)

	st, x := StateOf(n.View().View, scope)
	require.Equal(t, Unknown, st)
	require.Equal(t, old, x.Epoch)
	_, err := ops.Begin(t.Context(), Request{Scope: scope})
	require.ErrorIs(t, err, ErrAbandoned)

	op, err := ops.Begin(t.Context(), Request{Scope: scope, Abandoned: x.Epoch})
	require.NoError(t, err)
	require.Equal(t, old, op.Predecessor())
	require.ErrorIs(t, op.Check(), ErrUninspected)
	require.ErrorIs(t, op.Complete(t.Context()), ErrUninspected)
	down := errors.New("the database is down")
	err = op.Inspect(t.Context(), func(context.Context) error { return down })
	require.ErrorIs(t, err, ErrUninspected)
	require.ErrorIs(t, err, down)
	require.ErrorIs(t, op.Check(), ErrUninspected, "a failed inspection proves nothing")

	require.NoError(t, op.Inspect(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, op.Check())
	require.NoError(t, op.Complete(t.Context()))
	require.Equal(t, Free, n.state(scope))
}

// TestIncarnationVoidsOperation: the process that was replaced can neither go on nor complete (§13).
func TestIncarnationVoidsOperation(t *testing.T) {
	n := newNode(t)
	op, err := New(n, nil).Begin(t.Context(), Request{Scope: fsm.TrustRootRotation})
	require.NoError(t, err)
	self := n.Self()
	n.must(t, fsm.UpdateMember{Node: self.Node, ExpectedIncarnation: self.Incarnation, Incarnation: cluster.NewIncarnationID()})
	require.ErrorIs(t, op.Check(), cluster.ErrFenced)
	require.ErrorIs(t, op.Complete(t.Context()), cluster.ErrFenced)
	require.Equal(t, Unknown, n.state(fsm.TrustRootRotation))
}

func TestTrustRotationScope(t *testing.T) { oneAtATime(t, fsm.TrustRootRotation) }

func TestGlobalGCScope(t *testing.T) { oneAtATime(t, fsm.GlobalGcCoordination) }

// oneAtATime begins the scope from two members in turn, always with one held.
func oneAtATime(t *testing.T, scope fsm.Scope) {
	n := newNode(t)
	ops := New(n, nil)
	var last fsm.Epoch
	for range 3 {
		held := n.otherBegins(t, scope)
		require.Greater(t, held, last)
		_, err := ops.Begin(t.Context(), Request{Scope: scope})
		require.ErrorIs(t, err, ErrHeld)
		n.must(t, fsm.CompleteExclusiveOperation{Scope: scope, Owner: n.other.Node, Incarnation: n.other.Incarnation, Epoch: held})
		op, err := ops.Begin(t.Context(), Request{Scope: scope})
		require.NoError(t, err)
		require.Greater(t, op.Epoch(), held)
		last = op.Epoch()
		require.NoError(t, op.Complete(t.Context()))
	}
}

// TestClusterMigrationScope: one migration at a time, held by the owner of
// MigrationCoordinator, whose next owner takes it over.
func TestClusterMigrationScope(t *testing.T) {
	n := newNode(t)
	ops := New(n, nil)
	service := cluster.NewService(cluster.ServiceConfig{Backend: n, Roles: fsm.Roles()})
	service.Start()
	defer func() { require.Error(t, service.Close(canceled())) }() // its tree is never told to end here
	guard := func(epoch fsm.Epoch) cluster.RoleGuard {
		var g cluster.RoleGuard
		require.Eventually(t, func() bool {
			service.Desired(fsm.MigrationCoordinator)
			var err error
			g, err = service.AcquireRole(t.Context(), fsm.MigrationCoordinator)
			return err == nil && g.Epoch() == epoch
		}, 5*time.Second, time.Millisecond)
		service.Report(fsm.MigrationCoordinator, epoch, cluster.TreeFenced, "", "")
		service.Report(fsm.MigrationCoordinator, epoch, cluster.TreeActive, "", "")
		return g
	}

	_, err := ops.Begin(t.Context(), Request{Scope: fsm.ClusterMigration})
	require.ErrorIs(t, err, ErrNeedsRole)
	self := n.Self()
	first := n.assign(t, fsm.MigrationCoordinator, self.Node, self.Incarnation)
	g := guard(first)
	op, err := ops.Begin(t.Context(), Request{Scope: fsm.ClusterMigration, Guard: g})
	require.NoError(t, err)
	require.NoError(t, op.Check())
	_, err = ops.Begin(t.Context(), Request{Scope: fsm.ClusterMigration, Guard: g})
	require.ErrorIs(t, err, ErrHeld)

	n.assign(t, fsm.MigrationCoordinator, n.other.Node, n.other.Incarnation)
	require.Equal(t, Unknown, n.state(fsm.ClusterMigration))
	require.ErrorIs(t, op.Check(), cluster.ErrFenced)
	require.ErrorIs(t, op.Complete(t.Context()), cluster.ErrFenced)
	next := n.must(t, fsm.StartExclusiveOperation{Scope: fsm.ClusterMigration, Owner: n.other.Node, Incarnation: n.other.Incarnation, Abandoned: op.Epoch()})
	require.Greater(t, next.Epoch, op.Epoch())
	require.Equal(t, Held, n.state(fsm.ClusterMigration))
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestUnknownBeginning: the reply of a beginning is lost; the next Begin finds
// the operation instead of beginning another or finding the scope held for ever.
func TestUnknownBeginning(t *testing.T) {
	for name, between := range map[string]int{"within the replay window": 0, "after it": fsm.MaxRecent} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			ops := New(n, nil)
			lost := &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-NET-002", OutcomeUnknown: true}
			n.answered = func(cluster.Commit, error) (cluster.Commit, error) { return cluster.Commit{}, lost }
			_, err := ops.Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
			require.ErrorIs(t, err, lost)
			n.answered = nil
			begun := n.View().Epoch
			for i := range between {
				n.must(t, fsm.SetMaintenance{ExpectedEpoch: n.View().MaintenanceEpoch, State: fsm.Maintenance(1 + i%2)})
			}
			op, err := ops.Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
			require.NoError(t, err)
			require.Equal(t, begun, op.Epoch())
			require.NoError(t, op.Check())
			require.NoError(t, op.Complete(t.Context()))
			require.Equal(t, Free, n.state(fsm.GlobalGcCoordination))
		})
	}
}

// TestOldViewRefuses: while the view cannot be confirmed the operation pauses, and goes on afterwards.
func TestOldViewRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ahead := time.Duration(0)
		op, err := New(n, func() time.Time { return time.Now().Add(ahead) }).Begin(t.Context(), Request{Scope: fsm.GlobalGcCoordination})
		require.NoError(t, err)
		ahead = cluster.ConfirmationBound + time.Millisecond
		require.ErrorIs(t, op.Check(), cluster.ErrUnconfirmed)
		ahead = 0
		require.NoError(t, op.Check())
	})
}
