// The committed view becomes events, each fact once.

package events_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/events"
)

// views is a backend that shows what it is told to.
type views struct {
	mu   sync.Mutex
	view cluster.View
	hint chan struct{}
}

func (v *views) View() cluster.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.view
}

func (v *views) Changes() (<-chan struct{}, func())     { return v.hint, func() {} }
func (v *views) Leadership() (cluster.Leadership, bool) { return cluster.Leadership{Term: 1}, true }

func (v *views) show(view cluster.View) {
	v.mu.Lock()
	v.view = view
	v.mu.Unlock()
	v.hint <- struct{}{}
}

// Two leaders, one after the other or at once, tell each fact once.
func TestProjectedOnce(t *testing.T) {
	p := newPlane(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 2)
	both := []*views{{hint: make(chan struct{})}, {hint: make(chan struct{})}}
	for _, v := range both {
		projector := events.NewProjector(v, p.store, events.NewBus(), nil)
		go func() { over <- projector.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range both {
			require.NoError(t, <-over)
		}
	})
	node := cluster.NewNodeID()
	shown := cluster.View{View: fsm.View{
		ClusterID: cluster.NewClusterID(), Generation: 1, Leader: node, LeaderEpoch: fsm.LeaderEpoch{Term: 3, Epoch: 7},
		Roles:    []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 8, Owner: node}},
		Releases: []fsm.Release{{Role: fsm.SchedulerLeader, Epoch: 5, Node: node, Code: "FY-X", Reason: "because"}},
		Members:  []fsm.Member{{Node: node, Name: "node-a"}},
	}}
	count := func() (n, outbox int) {
		require.NoError(t, p.super.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM coordination.events), (SELECT count(*) FROM forge.outbox)`).Scan(&n, &outbox))
		return n, outbox
	}
	for range 3 {
		for _, v := range both {
			v.show(shown)
		}
	}
	require.Eventually(t, func() bool { n, _ := count(); return n == 4 }, soon, time.Millisecond)
	shown.Roles = []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 9, Owner: node}}
	for range 2 {
		for _, v := range both {
			v.show(shown)
		}
	}
	require.Eventually(t, func() bool { n, _ := count(); return n == 5 }, soon, time.Millisecond)
	n, outbox := count()
	require.Equal(t, n, outbox, "one event for each fact")
}

// TestStillShown: what the view shows when a leader begins to look is noted as
// seen, all at one moment, so that retention never takes it; what it does not show is left.
func TestStillShown(t *testing.T) {
	p := newPlane(t)
	node := cluster.NewNodeID()
	shown := cluster.View{View: fsm.View{
		ClusterID: cluster.NewClusterID(), Generation: 1, Leader: node, LeaderEpoch: fsm.LeaderEpoch{Term: 3, Epoch: 7},
		Roles: []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 8, Owner: node}},
	}}
	run := func(then func()) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		v := &views{hint: make(chan struct{}), view: shown}
		go func() { over <- events.NewProjector(v, p.store, events.NewBus(), nil).Run(ctx) }()
		then()
		cancel()
		require.NoError(t, <-over)
	}
	is := func(sql string) func() {
		return func() {
			require.Eventually(t, func() bool {
				var ok bool
				require.NoError(t, p.super.QueryRow(t.Context(), sql).Scan(&ok))
				return ok
			}, soon, time.Millisecond)
		}
	}
	run(is(`SELECT count(*) = 2 FROM coordination.events`))
	_, err := p.super.Exec(t.Context(), `UPDATE coordination.events SET seen_at = seen_at - interval '1 y'`)
	require.NoError(t, err)
	shown.Roles[0].Epoch = 9
	run(is(`SELECT count(*) = 2 AND count(DISTINCT seen_at) = 1 FROM coordination.events WHERE seen_at > coordination.clock() - interval '1 h'`))
	is(`SELECT count(*) = 3 AND min(id) FILTER (WHERE seen_at < coordination.clock() - interval '1 h') = 'grant/1/8' FROM coordination.events`)()
}
