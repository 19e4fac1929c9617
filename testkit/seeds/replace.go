// A disk that is lost: its node is removed from the cluster, and a new one joins in its place and is promoted.

package seeds

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/bubble"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// memberPatience is how long the removal, and then the way of the new node to its vote, may take.
const memberPatience = 4 * time.Minute

// replace puts a new node in the place of one whose disk was lost. The lost one is
// removed and the new one promoted on the side, as soon as the fleet can.
func (w *world) replace(gone *bubble.Node) {
	n := w.fleet.Replace(gone)
	w.side.Go(func() {
		var token membership.Token
		w.until("token: "+n.Name, func(ctx context.Context, i int) error {
			var added membership.Added
			_, err := w.node(i).Ask(ctx, http.MethodPost, "/v1/cluster/add", nil, membership.AddRequest{Node: n.ID, Name: n.Name}, &added)
			token = membership.Token(added.Token)
			return err
		})
		select {
		case w.nemesis.asked <- func() { w.tokens[n] = token; w.start(n) }:
		case <-w.ctx.Done():
			return
		}
		if w.until("removed: "+gone.Name, func(ctx context.Context, i int) error { return w.expel(ctx, w.node(i).Coordination(), gone.ID) }) {
			w.until("recorded as removed: "+gone.Name, func(ctx context.Context, _ int) error { return w.recordRemoved(ctx, gone.ID) })
		}
		promoted := w.until("promoted: "+n.Name, func(ctx context.Context, i int) error {
			_, err := w.node(i).Ask(ctx, http.MethodPost, "/v1/cluster/promote", nil, membership.PromoteRequest{Node: n.ID.String()}, nil)
			return err
		})
		if promoted {
			w.tally.Add(LoseDisk, 1)
		}
	})
}

// recordRemoved notes in the history that a node may do nothing any more.
func (w *world) recordRemoved(ctx context.Context, gone fsm.NodeID) error {
	c, err := pgx.Connect(ctx, w.fleet.Database.Super) // w.super belongs to the test's goroutine
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	return history.AddRemoved(ctx, c, gone.String())
}

// until tries an act on one daemon after the other until it succeeds.
func (w *world) until(what string, act func(ctx context.Context, i int) error) bool {
	ctx, cancel := context.WithTimeout(w.ctx, memberPatience)
	defer cancel()
	var err error
	for i := 0; ctx.Err() == nil; i++ {
		if err = act(ctx, i); err == nil {
			w.note("%s", what)
			return true
		}
		pass(ctx, tryAgain)
	}
	if w.ctx.Err() == nil {
		w.problem("it did not happen within %s: %s: %v", memberPatience, what, err)
	}
	return false
}

// expel removes a node that is gone, step by step, on the leader; the steps that
// were taken before are not taken again.
func (w *world) expel(ctx context.Context, engine cluster.Backend, gone fsm.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	node, ok := engine.(interface {
		RemoveServer(context.Context, fsm.NodeID) error
	})
	if !ok {
		return fmt.Errorf("%T removes nobody", engine)
	}
	engine = w.grants.Watch(engine)
	propose := func(c fsm.Command) error {
		_, err := engine.Propose(ctx, fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
		return err
	}
	v, err := engine.LinearizableView(ctx)
	if err != nil {
		return err
	}
	for _, state := range []fsm.MemberState{fsm.Draining, fsm.Leaving} {
		m, known := v.Member(gone)
		if !known {
			return nil
		}
		if m.State >= state {
			continue
		}
		if err := propose(fsm.UpdateMember{Node: gone, ExpectedIncarnation: m.Incarnation, State: state}); err != nil {
			return err
		}
	}
	if err := node.RemoveServer(ctx, gone); err != nil {
		return err
	}
	if v, err = engine.LinearizableView(ctx); err != nil {
		return err
	}
	return propose(fsm.RemoveMember{ExpectedConfig: v.Config, Node: gone})
}
