// Suffrage: changes of the library's configuration, one at a time, each against the committed one (§157, §158).

package raftnode

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Suffrage is who takes part in consensus, by the library's own configuration.
type Suffrage struct {
	Voters    []fsm.NodeID
	Nonvoters []fsm.NodeID
}

// Contains reports whether the node takes part at all.
func (s Suffrage) Contains(n fsm.NodeID) bool {
	return slices.Contains(s.Voters, n) || slices.Contains(s.Nonvoters, n)
}

// Suffrage returns the newest configuration this node has in its log. It does not block.
func (n *Node) Suffrage() Suffrage {
	return suffrageOf(n.raft.GetConfiguration().Configuration())
}

// CommittedSuffrage returns the newest configuration that this node knows to be
// committed, which the log may have gone beyond; empty while it knows none.
func (n *Node) CommittedSuffrage() Suffrage {
	if c := n.machine.configured.Load(); c != nil {
		return c.suffrage
	}
	return Suffrage{}
}

func suffrageOf(c raft.Configuration) (s Suffrage) {
	for _, server := range c.Servers {
		id, err := fsm.ParseNodeID(string(server.ID))
		if err != nil {
			continue
		}
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, id)
		} else {
			s.Nonvoters = append(s.Nonvoters, id)
		}
	}
	return s
}

// LastIndex is the index of the newest entry in this node's log.
func (n *Node) LastIndex() uint64 { return n.raft.LastIndex() }

// AddNonvoter lets an admitted member receive the log. Leader only; of a node that
// takes part already it is known, when this returns, that it does for good.
// MembershipConflict when the configuration moves under the change or is not yet known.
func (n *Node) AddNonvoter(ctx context.Context, node fsm.NodeID) error {
	m, member := n.machine.current().Member(node)
	if !member || m.Role == fsm.Observer {
		return ErrConfigurationMoved.Wrap(nil, "node %s is not admitted to consensus", node)
	}
	if n.Suffrage().Contains(node) {
		return n.underWay(ctx, func(s Suffrage) bool { return s.Contains(node) })
	}
	return n.change(ctx, fsm.NodeID{}, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.AddNonvoter(serverID(node), serverAddress(node), prev, wait)
	})
}

// AddVoter gives the vote to a promoted member that receives the log already
// (§63): nobody becomes a voter without having been a learner. Leader only.
func (n *Node) AddVoter(ctx context.Context, node fsm.NodeID) error {
	m, member := n.machine.current().Member(node)
	if !member || m.Role != fsm.Voter {
		return ErrConfigurationMoved.Wrap(nil, "node %s is not promoted", node)
	}
	s := n.Suffrage()
	switch {
	case slices.Contains(s.Voters, node):
		return n.underWay(ctx, func(s Suffrage) bool { return slices.Contains(s.Voters, node) })
	case !slices.Contains(s.Nonvoters, node):
		return ErrConfigurationMoved.Wrap(nil, "node %s does not receive the log", node)
	}
	return n.change(ctx, fsm.NodeID{}, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.AddVoter(serverID(node), serverAddress(node), prev, wait)
	})
}

// RemoveServer takes a node's part in consensus away, whether it answers or not:
// expulsion follows suffrage, so its member entry goes afterwards. Leader only; of
// a node that takes no part it is known, when this returns, that it does not for
// good. This node cannot remove itself.
// MembershipConflict when a voter that stays has not stored the previous change.
func (n *Node) RemoveServer(ctx context.Context, node fsm.NodeID) error {
	if node == n.cfg.Self.Node {
		return ErrConfigurationMoved.Wrap(nil, "node %s leads; another one has to remove it", node)
	}
	if !n.Suffrage().Contains(node) {
		return n.underWay(ctx, func(s Suffrage) bool { return !s.Contains(node) })
	}
	return n.change(ctx, node, func(prev uint64, wait time.Duration) raft.IndexFuture {
		return n.raft.RemoveServer(serverID(node), prev, wait)
	})
}

// change carries out one change of the library's configuration; leaving is who
// goes with it, zero for nobody.
func (n *Node) change(ctx context.Context, leaving fsm.NodeID, request func(prev uint64, wait time.Duration) raft.IndexFuture) error {
	if err := n.usable(); err != nil {
		return err
	}
	if _, leads := n.Leadership(); !leads {
		return cluster.ErrNotLeader
	}
	if err := n.settled(leaving); err != nil {
		return err
	}
	prev := n.machine.configuredAt()
	ctx, cancel := bounded(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline()
	err := n.await(ctx, func() error { return n.answer(request(prev, max(time.Millisecond, time.Until(deadline)))) })
	switch {
	case err == nil:
		n.awaitSettled(ctx)
		return nil
	case strings.Contains(err.Error(), "configuration changed since"): // the library has no value for it
		return ErrConfigurationMoved.Wrap(err, "")
	}
	return appendError(err)
}

// underWay waits until a change that this node's log has already is committed,
// and stored by the voters: another caller may just have asked for it, and it may
// yet be lost with this leader.
func (n *Node) underWay(ctx context.Context, done func(committed Suffrage) bool) error {
	if err := n.usable(); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for {
		if _, leads := n.Leadership(); !leads {
			return cluster.ErrNotLeader
		}
		if done(n.CommittedSuffrage()) {
			n.awaitSettled(ctx)
			return nil
		}
		select {
		case <-ctx.Done():
			return cluster.ErrTimeout.Wrap(ctx.Err(), "the change is in the log and not committed yet")
		case <-n.stop.Done():
			return cluster.ErrEngineClosed
		case <-poll.C:
		}
	}
}

// awaitSettled waits until every voter has stored the change that was just
// committed. A voter that still holds the previous configuration refuses its
// vote to one it takes for a nonvoter, so a leader that dies before would leave
// a majority that cannot elect. The change stands in any case.
func (n *Node) awaitSettled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleBound)
	defer cancel()
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	for n.Settled() != nil {
		select {
		case <-ctx.Done():
			n.cfg.Logger.Warn("a voter has not stored the membership change yet", "error", n.Settled())
			return
		case <-n.stop.Done():
			return
		case <-poll.C:
		}
	}
}

// Settled returns nil when the configuration may change now: the previous
// change is known and every voter has stored it, as two changes on the way at
// once could leave two majorities. MembershipConflict names the voter that has
// not. It also says so of a voter that has not answered this leader yet.
func (n *Node) Settled() error { return n.settled(fsm.NodeID{}) }

// settled is Settled without asking for a voter that leaves: one that is gone for
// good would otherwise stop its own removal.
func (n *Node) settled(leaving fsm.NodeID) error {
	prev := n.machine.configuredAt()
	if prev == 0 {
		// The library takes 0 for "do not check".
		return ErrConfigurationMoved.Wrap(nil, "the committed configuration is not known here yet")
	}
	match := map[fsm.NodeID]uint64{n.cfg.Self.Node: n.raft.LastIndex()}
	for _, p := range n.cfg.Transport.Peers() {
		match[p.Node] = p.MatchIndex
	}
	for _, v := range n.Suffrage().Voters {
		if v != leaving && match[v] < prev {
			return ErrConfigurationMoved.Wrap(nil, "voter %s is not known to have stored the previous change (entry %d, it has %d)", v, prev, match[v])
		}
	}
	return nil
}
