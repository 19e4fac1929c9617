// Spent epochs: whatever makes an owner lose its epoch, the role works again alone, under a higher one, by one command.

package bubble

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

const role = fsm.SchedulerLeader

// TestSpentEpochs goes through the causes on one fleet, with jobs running all the time.
func TestSpentEpochs(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 7)
		ran := &starts{count: map[string]int{}}
		f.StartAgent("agent-1", 2, ran.executor(500*time.Millisecond))
		id := f.submit(f.Nodes[0], run("spent", 40))

		f.spend("fenced out of nowhere", func(*Node, fsm.Epoch) { f.lowerFence() })
		f.spend("unknown outcome", func(owner *Node, _ fsm.Epoch) { owner.lose(t, errLostReply) })
		f.moveToFollower()
		f.spend("a follower's link to the leader is cut", func(owner *Node, _ fsm.Epoch) {
			f.Cut(owner, f.leader())
			f.pass(time.Second)
			f.Heal()
		})
		f.spend("starved leader", func(owner *Node, _ fsm.Epoch) {
			f.Starve(f.leader(), 600*time.Millisecond)
			f.pass(2 * time.Second)
			for _, n := range f.Nodes {
				f.Starve(n, 0)
			}
		})
		f.awaitDone(f.Nodes[0], id, 40)
		ran.requireOnce(t)
	})
}

// spend does something that spends the role's epoch, and checks what follows.
func (f *Fleet) spend(what string, do func(owner *Node, epoch fsm.Epoch)) {
	f.t.Helper()
	owner, before := f.ActiveAbove(role, 0, f.Nodes...)
	was := f.leader().Status()
	do(owner, before)
	_, after := f.ActiveAbove(role, before, f.Nodes...)
	f.pass(3 * time.Second)
	next, stays := f.ActiveAbove(role, before, f.Nodes...)
	is := f.leader().Status()
	f.t.Logf("%s: epoch %d of %s, then %d of %s; leadership %d, then %d", what, before, owner.Name, stays, next.Name, was.Leader.Epoch.Epoch, is.Leader.Epoch.Epoch)

	require.Equal(f.t, 1, f.count(role, before, trace.Inactive), what)
	require.LessOrEqual(f.t, f.count(role, before, trace.Bump, trace.Release), 1, what)
	if is.Leader.Epoch.Epoch == was.Leader.Epoch.Epoch {
		require.Equal(f.t, after, stays, "%s: the role settled at once", what)
		require.Equal(f.t, was.Epoch+1, is.Epoch, "%s: one epoch was taken", what)
		require.Equal(f.t, 1, f.count(role, before, trace.Bump, trace.Release)+f.vacated(before), "%s: one command ended the epoch", what)
	}
	active := 0
	for _, n := range f.Nodes {
		for _, row := range n.Roles() {
			if row.Role == role && row.State == cluster.GuardActive {
				active++
			}
		}
	}
	require.Equal(f.t, 1, active, what)
}

// vacated is 1 when the coordination leader, not the owner, ended the epoch.
func (f *Fleet) vacated(epoch fsm.Epoch) int {
	for _, row := range f.leader().Status().RoleRows {
		if x := row.LastRelease; row.Role == role && x != nil && x.Epoch == epoch && f.count(role, epoch, trace.Release) == 0 {
			return 1
		}
	}
	return 0
}

// leader is the node that leads now, once all agree.
func (f *Fleet) leader() (leader *Node) {
	f.t.Helper()
	f.Await("one leader", func() bool {
		leader = nil
		for _, n := range f.Nodes {
			known := f.node(n.Status().Leader.Node)
			if known == nil || leader != nil && leader != known {
				return false
			}
			leader = known
		}
		return true
	})
	return leader
}

func (f *Fleet) node(id fsm.NodeID) *Node {
	for _, n := range f.Nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// moveToFollower makes the leader's node give the role up, so that another gets it.
func (f *Fleet) moveToFollower() {
	f.t.Helper()
	leader := f.leader()
	for epoch, tries := fsm.Epoch(0), 0; tries < 4; tries++ {
		_, epoch = f.ActiveAbove(role, epoch, leader)
		require.NoError(f.t, leader.daemon.Actors().Crash(fmt.Sprintf("roles/%s/%d", role, epoch)))
	}
	owner, _ := f.ActiveAbove(role, 0, f.except(leader)...)
	require.NotEqual(f.t, f.leader().ID, owner.ID)
}

// lowerFence makes the database refuse the owner's epoch, as nothing in the product ever does.
func (f *Fleet) lowerFence() {
	f.t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, f.Database.Super)
	require.NoError(f.t, err)
	defer c.Close(ctx)
	tag, err := c.Exec(ctx, "UPDATE coordination.fence SET epoch = epoch - 1 WHERE role = $1", int16(role))
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, tag.RowsAffected())
}

var errLostReply = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-TEST-002", Message: "the reply is lost", OutcomeUnknown: true}

// lose makes a piece of work under the node's guard end with an outcome.
func (n *Node) lose(t *testing.T, outcome error) {
	t.Helper()
	err := n.daemon.Actors().Do(context.Background(), role, func(_ context.Context, g cluster.RoleGuard) error {
		g.Lost(outcome)
		return outcome
	})
	require.ErrorIs(t, err, outcome)
}
