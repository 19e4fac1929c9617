// Every cause of a revocation: the same order each time, also for a loop that ignores its context.

package actorchaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/order"
)

// ending is one way in which an epoch ends.
type ending struct {
	name    string
	cause   string // as traced
	owes    trace.Kind
	idle    bool // the epoch ends before its loops start
	trigger func(*node, fsm.Role)
}

func endings() []ending {
	return []ending{
		{name: "moved", cause: "moved", trigger: (*node).vacate},
		{name: "regenerated", cause: "regenerated", owes: trace.Bump, trigger: func(n *node, _ fsm.Role) { n.backend.regenerate() }},
		{name: "unconfirmed", cause: "unconfirmed", owes: trace.Bump, trigger: func(n *node, _ fsm.Role) {
			n.backend.lose()
			n.settle(2 * cluster.ConfirmationBound)
			n.backend.regain()
		}},
		{name: "fenced", cause: "fenced", owes: trace.Bump, trigger: func(n *node, r fsm.Role) { n.roles[r].held().Lost(cluster.ErrFenced) }},
		{name: "fenced while raising", cause: "fenced", owes: trace.Release, idle: true, trigger: func(n *node, r fsm.Role) {
			n.roles[r].refuseRaise()
			n.vacate(r)
		}},
		{name: "unknown outcome", cause: "unknown", owes: trace.Bump, trigger: func(n *node, r fsm.Role) { n.roles[r].held().Lost(errLostReply) }},
		{name: "role actor panics", cause: "unknown", owes: trace.Bump, trigger: func(n *node, r fsm.Role) {
			require.NoError(n.t, n.system.Crash(fmt.Sprintf("roles/%s/%d", r, n.grant(r).Epoch)))
		}},
		{name: "role supervisor panics", cause: "unknown", owes: trace.Bump, trigger: func(n *node, r fsm.Role) {
			require.NoError(n.t, n.system.Crash("roles/"+r.String()))
		}},
		{name: "gave up", cause: "gave_up", owes: trace.Release, trigger: func(n *node, r fsm.Role) {
			for range 4 {
				n.eventually("the loop breaks", n.roles[r].breakLoop)
			}
		}},
		{name: "died", cause: "died", owes: trace.Bump, idle: true, trigger: func(n *node, r fsm.Role) {
			n.trees.refuseNext(r)
			n.vacate(r)
		}},
	}
}

// Whatever ends an epoch, its guard is inactive before its context is cancelled,
// and invalid before anything of its tree has ended; nothing was written since;
// and the role works again under a higher epoch, by at most one command.
func TestEveryCauseKeepsTheOrder(t *testing.T) {
	seed := chaosSeed(t)
	for _, e := range endings() {
		t.Run(e.name, func(t *testing.T) {
			inBubble(t, seed, actors.Budget{}, func(t *testing.T, n *node) { n.endBy(e, fsm.SchedulerLeader) })
		})
	}
}

func (n *node) endBy(e ending, role fsm.Role) {
	n.t.Helper()
	w := n.roles[role]
	w.beDeaf()
	n.allActive()
	before := n.grant(role).Epoch
	e.trigger(n, role)
	n.eventually("revoked by "+e.cause, func() bool { _, ok := n.endedBy(role, e.cause, before); return ok })
	epoch, _ := n.endedBy(role, e.cause, before)
	n.eventually("active again", func() bool { return n.grant(role).Epoch > epoch && w.runsOnly(n.grant(role).Epoch) })

	events := n.trace.Of(role, epoch)
	require.Equal(n.t, e.cause, order.Revocation(n.t, events))
	var commands []trace.Kind
	if e.owes != "" {
		commands = []trace.Kind{e.owes}
	}
	require.Equal(n.t, commands, kinds(events, trace.Bump, trace.Release))
	if e.idle {
		require.Empty(n.t, kinds(events, trace.LoopStart))
		return
	}
	n.requireDeaf(role, epoch)
	require.Empty(n.t, n.exits.all())
}

// A closing process gives its roles up in the same order.
func TestClosingKeepsTheOrder(t *testing.T) {
	inBubble(t, chaosSeed(t), actors.Budget{}, func(t *testing.T, n *node) {
		for _, w := range n.roles {
			w.beDeaf()
		}
		n.allActive()
		n.planner.hold(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, n.service.Close(ctx))
		for _, role := range fsm.Roles() {
			g := n.grant(role)
			require.True(t, g.Vacant())
			events := n.trace.Of(role, g.Epoch)
			require.Equal(t, "declined", order.Revocation(t, events))
			require.Equal(t, []trace.Kind{trace.Release}, kinds(events, trace.Bump, trace.Release))
			release, _ := n.backend.View().Release(role)
			require.Equal(t, cluster.ErrClosing.Code, release.Code)
			n.requireDeaf(role, g.Epoch)
		}
	})
}

// requireDeaf: the deaf loop did go on for its whole time after the context had
// ended, and every one of its writes was refused.
func (n *node) requireDeaf(role fsm.Role, epoch fsm.Epoch) {
	n.t.Helper()
	var cancelled, ended int64
	for _, e := range n.trace.Of(role, epoch) {
		switch {
		case e.Kind == trace.Cancel:
			cancelled = e.Mono
		case e.Kind == trace.LoopEnd && e.Detail == loopDeaf:
			ended = e.Mono
		}
	}
	require.GreaterOrEqual(n.t, time.Duration(ended-cancelled), deafness)
	require.Positive(n.t, n.roles[role].refusals())
	require.Len(n.t, kinds(n.trace.Of(role, epoch), trace.CheckRefused), 1, "the first refusal is traced, once")
}

// endedBy finds the first epoch from one on that ended by a cause.
func (n *node) endedBy(role fsm.Role, cause string, from fsm.Epoch) (fsm.Epoch, bool) {
	for _, e := range n.trace.Events() {
		if e.Role == role && e.Kind == trace.Inactive && e.Epoch >= from && e.Detail == cause {
			return e.Epoch, true
		}
	}
	return 0, false
}

// kinds lists the events of some kinds, in order.
func kinds(events []trace.Event, of ...trace.Kind) (found []trace.Kind) {
	for _, e := range events {
		for _, k := range of {
			if e.Kind == k {
				found = append(found, k)
			}
		}
	}
	return found
}
