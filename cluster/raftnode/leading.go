// Leadership: a term counts only after its barrier, and only while the library still says so.

package raftnode

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// The library's notifications are hints, the state is read; these back them up.
const (
	leadershipPoll   = 100 * time.Millisecond // while this node leads a term that does not count yet, or must hand it over
	leadershipReload = time.Second            // otherwise: Leadership reads the library's state itself
	handOverBackoff  = 2 * time.Second        // bounds the pause between attempts to hand over, which begins with leadershipPoll
)

// Leadership implements cluster.Backend. It reads atomics only. Before the
// cluster is founded there is nothing to lead.
func (n *Node) Leadership() (cluster.Leadership, bool) {
	term, leads := n.established()
	if !leads || !n.machine.current().Initialised() {
		return cluster.Leadership{}, false
	}
	return cluster.Leadership{Term: term}, true
}

// established is the term that this node leads after its barrier.
func (n *Node) established() (term uint64, leads bool) {
	term = n.readyTerm.Load()
	return term, term != 0 && n.failure.Load() == nil && n.stop.Err() == nil && n.leads(term)
}

// leads reports whether the library leads exactly this term now. The term is
// read on both sides of the state, so a lost and won leadership between them is seen.
func (n *Node) leads(term uint64) bool {
	return n.raft.CurrentTerm() == term && n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term
}

// drainNotifications keeps the library from blocking: it sends every transition
// on an unread channel before it sets up the leader's state.
func (n *Node) drainNotifications(transitions <-chan bool) {
	for {
		select {
		case <-n.stop.Done():
			return
		case <-transitions:
			n.hints.Notify()
			n.turn()
		}
	}
}

// turn makes leadLoop look now.
func (n *Node) turn() {
	select {
	case n.turned <- struct{}{}:
	default:
	}
}

// leadLoop passes the barrier of each term this node leads (§509 of the library's
// own issue list: the signal comes before older entries are applied).
func (n *Node) leadLoop() {
	again := time.NewTimer(leadershipPoll)
	defer again.Stop()
	refused := leadershipPoll // the pause after the next hand-over that fails
	for {
		select {
		case <-n.stop.Done():
			return
		case <-n.turned:
		case <-again.C:
		}
		term, pause := n.raft.CurrentTerm(), time.Duration(0)
		switch ready := n.readyTerm.Load(); {
		case !n.leads(term):
			refused = leadershipPoll
			if ready != 0 && n.readyTerm.CompareAndSwap(ready, 0) {
				n.hints.Notify()
			}
		case n.failure.Load() != nil:
			n.handOver()
			pause, refused = refused, min(2*refused, handOverBackoff)
		case ready != term:
			n.establish(term)
		}
		again.Reset(cmp.Or(pause, n.leadershipPause()))
	}
}

func (n *Node) leadershipPause() time.Duration {
	if n.raft.State() == raft.Leader && (n.failure.Load() != nil || n.readyTerm.Load() != n.raft.CurrentTerm()) {
		return leadershipPoll
	}
	return leadershipReload
}

// establish makes a term count. The barrier may take as long as the state
// machine needs; losing the leadership, or giving up on the state machine, ends the wait.
func (n *Node) establish(term uint64) {
	if err := n.await(n.sound, n.barrier); err != nil {
		n.cfg.Logger.Info("leadership not established", "term", term, "error", err)
		return
	}
	if !n.leads(term) {
		return
	}
	n.reports.clear()
	n.readyTerm.Store(term)
	n.cfg.Logger.Info("leadership established", "term", term, "index", n.machine.current().Index)
	n.hints.Notify()
}

// barrier returns once everything that was committed before it is applied.
func (n *Node) barrier() error {
	if mutant.Planted(mutant.NoBarrier) {
		return nil
	}
	b := n.raft.Barrier(0)
	err := n.answer(b)
	n.noteHandover(err)
	if err != nil {
		return err
	}
	if i, ok := b.(raft.IndexFuture); ok {
		n.machine.pass(i.Index())
	}
	return nil
}

// handOver gives the leadership of a node that stopped applying, or hangs in it,
// to another one: its log is sound, but it can lead nothing. Without another voter it does nothing.
func (n *Node) handOver() {
	if !n.heir() {
		return
	}
	ctx, cancel := context.WithTimeout(n.stop, n.cfg.Timers.ElectionTimeout)
	defer cancel()
	if err := n.transfer(ctx); err != nil {
		n.cfg.Logger.Warn("leadership could not be handed over", "error", err)
	}
}

// StepDown implements cluster.Backend. Without another voter it does nothing.
func (n *Node) StepDown(ctx context.Context, reason string) error {
	if n.raft.State() != raft.Leader {
		return cluster.ErrNotLeader
	}
	if !n.heir() {
		return nil
	}
	n.cfg.Logger.Info("stepping down", "reason", reason)
	ctx, cancel := bounded(ctx)
	defer cancel()
	return n.transfer(ctx)
}

// heir reports whether there is another voter.
func (n *Node) heir() bool { return len(n.Suffrage().Voters) > 1 }

// transfer lets the library pick the most advanced voter; it never picks one
// without a vote. While a write to the log hangs nobody takes the request up: it
// is not made when the hang can be seen.
func (n *Node) transfer(ctx context.Context) error {
	now := n.cfg.Now()
	if max(n.log.logWrite.lasts(now), n.log.stableWrite.lasts(now)) > n.cfg.Timers.HeartbeatTimeout {
		return ErrStoreStalled.Wrap(nil, "leadership cannot be handed over")
	}
	err := n.await(ctx, func() error { return n.answer(n.raft.LeadershipTransfer()) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return cluster.ErrNotLeader
	}
	return cluster.ErrNoQuorum.Wrap(err, "leadership was not handed over")
}

// Confirmed implements cluster.Backend. A leader's own proof counts once this
// node has applied what was committed: where apply hangs, a majority still
// acknowledges, but the view that guards go by is old.
func (n *Node) Confirmed() time.Time {
	if n.failure.Load() != nil || n.stop.Err() != nil {
		return time.Time{}
	}
	if l, leads := n.Leadership(); leads {
		at := n.cfg.Now()
		if voters := n.Suffrage().Voters; len(voters) != 1 || voters[0] != n.cfg.Self.Node { // else its own majority
			at = n.cfg.Transport.Confirmed(l.Term, voters)
		}
		// Only this leader commits in its term, so what was committed at that instant is not above its index now.
		n.confirmed.answered(answer{at: at, index: n.raft.CommitIndex()}, n.machine.passed.Load())
	}
	return n.confirmed.at()
}

// Peers implements cluster.Backend.
func (n *Node) Peers() []cluster.Peer {
	if _, leads := n.Leadership(); !leads {
		return nil
	}
	var out []cluster.Peer
	for _, p := range n.cfg.Transport.Peers() {
		out = append(out, cluster.Peer{Node: p.Node, MatchIndex: p.MatchIndex, LastContact: p.LastContact})
	}
	return out
}

// CommitIndex is the last entry that this node knows to be committed.
func (n *Node) CommitIndex() uint64 { return n.raft.CommitIndex() }

// leader is the Raft leader this node follows or is.
func (n *Node) leader() (fsm.NodeID, bool) {
	_, id := n.raft.LeaderWithID()
	if id == "" {
		return fsm.NodeID{}, false
	}
	node, err := fsm.ParseNodeID(string(id))
	return node, err == nil
}
