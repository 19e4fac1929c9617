// Removal: a voter that is gone for good does not stop its own removal, and afterwards stops nothing.

package raftnode

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestRemoveServerThatIsGone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		gone := f.others(leader)[0]
		gone.close()
		next := f.add()
		next.start()
		f.admit(leader, next)
		require.Error(t, leader.node.Settled(), "the voter that is gone has not stored the change before")

		require.Error(t, leader.node.RemoveServer(t.Context(), leader.id), "a leader cannot remove itself")
		require.NoError(t, leader.node.RemoveServer(t.Context(), gone.id))
		require.False(t, leader.node.Suffrage().Contains(gone.id))
		require.NoError(t, leader.node.RemoveServer(t.Context(), gone.id), "again")
		require.NoError(t, leader.node.Settled())
		f.promote(leader, next)
		require.Contains(t, leader.node.Suffrage().Voters, next.id)
	})
}

func TestRemoveServerNeedsTheOthers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		others := f.others(leader)
		others[0].close()
		next := f.add()
		next.start()
		f.admit(leader, next)
		require.Error(t, leader.node.RemoveServer(t.Context(), others[1].id), "a voter that stays has not stored the change before")
		require.Contains(t, leader.node.Suffrage().Voters, others[1].id)
	})
}

// TestUnknownOutcomeRemovalAmidWrites: with many writes in flight a leader hands over
// and is removed by the next one. Every caller is told an outcome, whatever was
// acknowledged is in the state of all who stay, and their states never differ.
func TestUnknownOutcomeRemovalAmidWrites(t *testing.T) {
	withDisks(t, func(t *testing.T, f *fleet, _ map[fsm.NodeID]*badDisk, l *ledger) {
		old := f.leader()
		var callers sync.WaitGroup
		var mu sync.Mutex
		acknowledged := map[fsm.RequestID]cluster.Commit{}
		refused := 0
		write := func(m *member) {
			for range 100 {
				callers.Go(func() {
					p := fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{ExpectedEpoch: m.node.View().MaintenanceEpoch, State: fsm.ReadOnly}}
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					c, err := m.node.Propose(ctx, p)
					mu.Lock()
					defer mu.Unlock()
					var told *cluster.Error
					switch {
					case err == nil:
						acknowledged[p.Request] = c
					case errors.As(err, &told):
						refused++
					default:
						t.Errorf("an error that tells nothing: %v", err)
					}
				})
			}
		}
		write(old)
		require.Error(t, old.node.RemoveServer(t.Context(), old.id), "a leader cannot remove itself")
		require.NoError(t, old.node.StepDown(t.Context(), "it is removed"))
		next := f.leader(f.others(old)...)
		for _, m := range f.others(nil) {
			write(m)
		}
		f.eventually(func() bool { return next.node.RemoveServer(t.Context(), old.id) == nil })
		callers.Wait()
		old.close()
		require.NotEmpty(t, acknowledged)
		require.NotZero(t, refused)
		f.propose(next.node, fsm.SetMaintenance{ExpectedEpoch: next.node.View().MaintenanceEpoch, State: fsm.Normal})
		l.equal(f)
		for _, m := range f.others(nil) {
			for _, c := range acknowledged {
				require.LessOrEqual(t, c.Index, m.node.View().Index)
			}
		}
	})
}

// TestElectionStabilityRemovedNodeUnsettlesNobody: a voter that was removed while it
// was away, and comes back with what it had, costs no term and no leader.
func TestElectionStabilityRemovedNodeUnsettlesNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		away := f.others(leader)[0]
		away.connect(false)
		<-time.After(10 * fast.ElectionTimeout)
		require.NoError(t, leader.node.RemoveServer(t.Context(), away.id))
		term := leader.node.raft.CurrentTerm()
		away.connect(true)
		for range 600 {
			<-time.After(100 * time.Millisecond)
			require.Equal(t, term, leader.node.raft.CurrentTerm())
			_, leads := leader.node.Leadership()
			require.True(t, leads)
		}
		require.NotEqual(t, raft.Leader, away.node.raft.State())
	})
}

// TestChangeUnderWayIsNoFact: who asks for a change that another caller has just
// begun is told of success when it is committed, and not because it is in the log:
// it goes when the leader does.
func TestChangeUnderWayIsNoFact(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, leader *member, next, other fsm.NodeID) error{
		"add a learner": func(ctx context.Context, l *member, next, _ fsm.NodeID) error { return l.node.AddNonvoter(ctx, next) },
		"give the vote": func(ctx context.Context, l *member, _, other fsm.NodeID) error { return l.node.AddVoter(ctx, other) },
		"remove a learner": func(ctx context.Context, l *member, _, other fsm.NodeID) error {
			return l.node.RemoveServer(ctx, other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, f *fleet) {
				leader, other, next := f.leader(), f.add(), f.add()
				other.start()
				f.admit(leader, other)
				if name == "give the vote" {
					f.propose(leader.node, fsm.PromoteVoter{ExpectedConfig: leader.node.View().Config, Node: other.id})
				}
				next.start()
				f.propose(leader.node, fsm.AddLearner{ExpectedConfig: leader.node.View().Config, Member: next.describe(next.cfg.Self.Incarnation)})
				leader.connect(false)
				var callers sync.WaitGroup
				for range 2 {
					callers.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						defer cancel()
						if ask(ctx, leader, next.id, other.id) == nil {
							t.Error("it was told that a change is made which is lost")
						}
					})
					<-time.After(10 * time.Millisecond)
				}
				callers.Wait()
				leader.close()
			})
		})
	}
}
