// Forwarded proposals: what a member may ask its leader to commit, authorised by its certificate (§104, §220).

package raftnode

import (
	"context"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

const methodPropose = "propose"

// leaderLook is how soon a call to a leader notices that another one is known: whom a follower follows, nobody tells.
const leaderLook = 100 * time.Millisecond

type proposeRequest struct {
	Proposal []byte `cbor:"1,keyasint"` // as in the log
}

type proposeReply struct {
	Result fsm.Result `cbor:"1,keyasint"`
	Index  uint64     `cbor:"2,keyasint"`
	Term   uint64     `cbor:"3,keyasint"`
	Replay bool       `cbor:"4,keyasint"` // not part of the log's own encoding of a result
}

func (r proposeReply) commit() cluster.Commit {
	r.Result.Replay = r.Replay
	return cluster.Commit{Result: r.Result, Index: r.Index, Term: r.Term}
}

func (n *Node) forward(ctx context.Context, leader fsm.NodeID, data []byte) (cluster.Commit, error) {
	ctx, cancel := n.whileFollowing(ctx, leader)
	defer cancel()
	var reply proposeReply
	if err := n.cfg.Control.Call(ctx, leader, transport.FamilyControl, methodPropose, proposeRequest{Proposal: data}, &reply); err != nil {
		return cluster.Commit{}, CallError(err)
	}
	return reply.commit(), nil
}

// whileFollowing ends ctx also when another leader than this one is known: one
// that hangs would hold the call until its deadline, while the next one could
// have committed it. cancel waits for the watch.
func (n *Node) whileFollowing(ctx context.Context, leader fsm.NodeID) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		look := time.NewTicker(leaderLook)
		defer look.Stop()
		for {
			if now, known := n.leader(); known && now != leader {
				end()
			}
			select {
			case <-ctx.Done():
				return
			case <-look.C:
			}
		}
	})
	return ctx, func() {
		end()
		watch.Wait()
	}
}

func (n *Node) handlePropose(ctx context.Context, from transport.Peer, body []byte) (any, error) {
	var req proposeRequest
	if err := DecodeRequest(body, &req); err != nil {
		return nil, err
	}
	member, err := n.sender(from)
	if err != nil {
		return nil, err
	}
	p, err := fsm.DecodeProposal(req.Proposal)
	if err != nil {
		return nil, ErrNotPermitted.Wrap(err, "node %s sent a proposal this build cannot read", member)
	}
	if !forwardable(p.Command, cluster.Identity{Node: member, Incarnation: from.Hello.Incarnation}) {
		return nil, ErrNotPermitted.Wrap(nil, "node %s may not propose %T here", member, p.Command)
	}
	if err := n.usable(); err != nil {
		return nil, err
	}
	// Word of its process as good as a ping: without it a node whose link is just
	// back loses the epoch it takes here to the silence before.
	n.reports.heard(member, from.Hello.Incarnation, n.cfg.Now())
	ctx, cancel := bounded(ctx)
	defer cancel()
	commit, err := n.append(ctx, req.Proposal)
	if err != nil {
		return nil, err
	}
	return proposeReply{Result: commit.Result, Index: commit.Index, Term: commit.Term, Replay: commit.Replay}, nil
}

// forwardable reports whether a process may have this committed through
// another node: only what it says of itself. Commands of the coordination
// leader and of administration come from the leading process alone.
func forwardable(c fsm.Command, who cluster.Identity) bool {
	self := func(n fsm.NodeID, inc fsm.IncarnationID) bool { return n == who.Node && inc == who.Incarnation }
	switch c := c.(type) {
	case fsm.BumpEpoch:
		return c.Role != 0 && self(c.Node, c.Incarnation)
	case fsm.ReleaseRole:
		return c.Leader == (fsm.LeaderEpoch{}) && self(c.Node, c.Incarnation)
	case fsm.UpdateMember:
		// A state is given by the leader, and the incarnation announced is the caller's own.
		return c.State == 0 && self(c.Node, c.Incarnation)
	case fsm.StartExclusiveOperation:
		return self(c.Owner, c.Incarnation)
	case fsm.CompleteExclusiveOperation:
		return self(c.Owner, c.Incarnation)
	}
	return false
}

// sender is the member that a message comes from: the certificate says who, the
// committed view or the library's configuration says whether it belongs.
func (n *Node) sender(from transport.Peer) (fsm.NodeID, error) {
	if from.Subject.Kind != pki.KindNode || from.Subject.Cluster != n.cfg.Self.Cluster {
		return fsm.NodeID{}, ErrNotPermitted.Wrap(nil, "%s is not a node of this cluster", from.Subject)
	}
	id, err := fsm.ParseNodeID(from.Subject.ID)
	if err != nil {
		return fsm.NodeID{}, ErrNotPermitted.Wrap(err, "the certificate names no node")
	}
	v := n.machine.current()
	m, member := v.Member(id)
	switch {
	case v.Tombstoned(id):
		return fsm.NodeID{}, ErrNotPermitted.Wrap(nil, "node %s was removed", id)
	case member && m.Role == fsm.Observer:
		return fsm.NodeID{}, ErrNotPermitted.Wrap(nil, "node %s is an observer", id)
	case !member && !n.Suffrage().Contains(id):
		return fsm.NodeID{}, ErrNotPermitted.Wrap(nil, "node %s is not a member", id)
	}
	return id, nil
}
