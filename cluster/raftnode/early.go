// Early election: what the engine tells of its standing, the messages between voters, and the order to campaign (§5).

package raftnode

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

const methodTestify = "testify"

type testifyRequest struct{}

// consensus is the engine as early election sees it.
type consensus struct{ n *Node }

// Standing implements early.Engine. The term is read on both sides of the rest,
// so that what is said belongs to one term.
func (c consensus) Standing() early.Standing {
	n := c.n
	term := n.raft.CurrentTerm()
	s := early.Standing{Term: term, Voters: n.Suffrage().Voters, Position: n.endOfLog()}
	leader, known := n.leader()
	if known {
		s.Leader = leader
		if m, member := n.machine.current().Member(leader); member {
			s.Incarnation = m.Incarnation
		}
		s.Appended = later(n.cfg.Transport.Heard(leader), n.raft.LastContact())
	}
	s.Follows = known && n.failure.Load() == nil && n.stop.Err() == nil && n.raft.State() == raft.Follower && n.raft.CurrentTerm() == term
	return s
}

// endOfLog is what a candidate is judged by. The library tells the term of its
// last entry in its statistics alone.
func (n *Node) endOfLog() early.Position {
	stats := n.raft.Stats()
	number := func(key string) uint64 {
		v, err := strconv.ParseUint(stats[key], 10, 64)
		if err != nil {
			return 0 // the lowest claim
		}
		return v
	}
	log := early.Position{Term: number("last_log_term"), Index: number("last_log_index")}
	if snapshot := number("last_snapshot_index"); snapshot > log.Index {
		return early.Position{Term: number("last_snapshot_term"), Index: snapshot}
	}
	return log
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Ask implements early.Engine.
func (c consensus) Ask(ctx context.Context, voter fsm.NodeID) (early.Testimony, error) {
	var t early.Testimony
	err := c.n.cfg.Control.Call(ctx, voter, transport.FamilyControl, methodTestify, testifyRequest{}, &t)
	return t, CallError(err)
}

var errLeaderBack = errors.New("the leader appends again, or the term has passed")

// Campaign implements early.Engine. An append on its way between the last look
// and the library's own loop cannot be seen: the order waits for that loop at
// most as long as ctx lasts.
func (c consensus) Campaign(ctx context.Context, was early.Standing) error {
	s := c.Standing()
	if !s.Follows || s.Term != was.Term || s.Leader != was.Leader || s.Appended.After(was.Appended) {
		return errLeaderBack
	}
	return c.n.cfg.Transport.Campaign(ctx)
}

// handleTestify answers voters alone.
func (n *Node) handleTestify(_ context.Context, from transport.Peer, body []byte) (any, error) {
	var req testifyRequest
	if err := DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	voter, err := n.sender(from)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(n.Suffrage().Voters, voter) {
		return nil, ErrNotPermitted.Wrap(nil, "node %s has no vote", voter)
	}
	return n.early.Testify(), nil
}

// watchLeader starts early election, if it is configured.
func (n *Node) watchLeader() {
	if n.cfg.Early == nil {
		return
	}
	n.early = early.New(n.cfg.Self.Node, consensus{n}, *n.cfg.Early, n.cfg.Logger, n.cfg.Now)
	n.cfg.Control.Handle(transport.FamilyControl, methodTestify, n.handleTestify)
	n.loops.Go(func() { n.early.Run(n.stop) })
}
