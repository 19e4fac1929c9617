// Leader transfer: a hand-over that is interrupted leaves the library refusing everything; the node ends, another leads.

package raftnode

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// wedge brings a leader into the library's state after FB-001: a transfer whose
// TimeoutNow is never answered, a step-down amid it, and the leadership won again.
func wedge(t *testing.T, f *fleet, leader *member) {
	t.Helper()
	leader.raft.noHeir = make(chan struct{})
	t.Cleanup(func() { close(leader.raft.noHeir) })
	leader.node.raft.LeadershipTransfer()
	f.eventually(func() bool {
		return leader.node.raft.Apply(nil, time.Second).Error() == raft.ErrLeadershipTransferInProgress //nolint:errorlint // the library's own value
	})
	leader.connect(false)
	f.eventually(func() bool { return leader.node.raft.State() != raft.Leader })
	leader.connect(true)
	for won := false; !won; {
		next := f.holder()
		if won = next == leader; won {
			break
		}
		if next != nil {
			_ = next.node.raft.LeadershipTransferToServer(serverID(leader.id), serverAddress(leader.id)).Error()
		}
		<-time.After(fast.HeartbeatTimeout)
	}
}

// holder is the node that the library says leads; nil while none does.
func (f *fleet) holder() *member {
	for _, m := range f.nodes {
		if m.node != nil && m.node.raft.State() == raft.Leader {
			return m
		}
	}
	return nil
}

func TestLeaderTransferWedgedLeaderEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		wedge(t, f, leader)
		begin := time.Now()
		require.ErrorIs(t, leader.node.raft.Apply(nil, time.Second).Error(), raft.ErrLeadershipTransferInProgress, "it is not wedged")
		_, leads := leader.node.Leadership()
		require.False(t, leads, "a leader that cannot pass its barrier must not count")

		require.Contains(t, <-leader.exits, ErrHandoverStuck.Code)
		require.Less(t, time.Since(begin), 10*time.Second)
		next := f.leader(f.others(leader)...)
		f.propose(next.node, fsm.SetMaintenance{State: fsm.ReadOnly})
	})
}

// warnings counts the failed hand-overs that a node's log tells of.
type warnings struct {
	slog.Handler
	handovers *atomic.Int64
}

func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "leadership could not be handed over") {
		w.handovers.Add(1)
	}
	return w.Handler.Handle(ctx, r)
}

func (w warnings) WithAttrs(a []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(a), w.handovers}
}

// A leader that gave up and has nobody to hand over to does not try; one whose heirs refuse tries less and less often.
func TestHandOverIsNotRepeatedWithoutEnd(t *testing.T) {
	const during = 10 * time.Second
	for name, c := range map[string]struct {
		voters       int
		atLeast, max int64
	}{
		"no heir":        {1, 0, 0},
		"unwilling heir": {3, 4, 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, f *fleet) {
				w := warnings{f.logs, new(atomic.Int64)}
				leader := f.add()
				leader.start(bootstrap, func(c *Config) { c.Logger = slog.New(w) })
				f.leader()
				f.grow(c.voters)
				leader.raft.unfit = errLineCut
				if c.voters == 1 {
					require.NoError(t, leader.node.raft.Apply([]byte("from a newer build"), time.Second).Error())
				} else { // that entry would stop them all
					leader.node.fail(cluster.ErrNewerBuild)
				}
				f.eventually(func() bool { return leader.node.Failure() != nil })
				<-time.After(during)
				require.Equal(t, raft.Leader, leader.node.raft.State())
				require.GreaterOrEqual(t, w.handovers.Load(), c.atLeast)
				require.LessOrEqual(t, w.handovers.Load(), c.max)
			})
		})
	}
}

// A hand-over that fails in time is none of the watchdog's business, and leaves no leader refused.
func TestLeaderTransferThatFailsEndsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *fleet) {
		leader := f.leader()
		leader.raft.noHeir = make(chan struct{})
		handed := make(chan error, 1)
		go func() { handed <- leader.node.StepDown(t.Context(), "the test") }()
		f.eventually(func() bool {
			return leader.node.handover.since.Load() != nil || leader.node.raft.Barrier(0).Error() != nil
		})
		require.ErrorIs(t, leader.node.barrier(), raft.ErrLeadershipTransferInProgress)
		require.ErrorIs(t, <-handed, cluster.ErrNoQuorum)
		close(leader.raft.noHeir) // a transport answers in the end
		f.eventually(func() bool { return leader.node.barrier() == nil || leader.node.raft.State() != raft.Leader })
		<-time.After(2 * leader.node.handoverLimit())
		require.Empty(t, leader.exits)
		f.propose(f.leader().node, fsm.SetMaintenance{State: fsm.ReadOnly})
	})
}
