// Watches what the library waits for without a bound: the disk and the state machine.

package raftnode

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
)

// watch looks twenty times per StallLimit. Heartbeats leave on goroutines of
// their own, so without it a leader whose disk or state machine hangs would be
// followed for ever while nothing it is asked for ever happens.
//
//	a write hangs                 → stop for good: nothing here can be relied on (snapshots, deletions of entries and the high-water mark are writes)
//	an apply hangs, not leading   → give coordination up; the log still counts
//	an apply hangs, leading       → the same, and leadLoop hands leadership over
//	… and still leads after three election timeouts → stop for good
//
//	a hand-over hangs             → stop for good: the library refuses every proposal until it ends
//
// Each bound is exceeded by at most two looks.
func (n *Node) watch() {
	interval := max(n.cfg.StallLimit/20, time.Millisecond)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	entry, vote, other := stall{timer: &n.log.logWrite}, stall{timer: &n.log.stableWrite}, stall{timer: &n.log.otherWrites.timer}
	apply := stall{timer: &n.machine.busy}
	handover := stall{timer: &n.handover}
	var leads time.Time // since when it leads with a hung state machine
	for {
		select {
		case <-n.stop.Done():
			return
		case <-tick.C:
		}
		now := n.cfg.Now()
		if d := max(entry.look(now, 2*interval), vote.look(now, 2*interval), other.look(now, 2*interval)); d > n.cfg.StallLimit {
			n.end(ExitStorage, ErrStoreStalled.Wrap(nil, "a write has been outstanding for %s", d.Round(time.Millisecond)))
			return
		}
		if d := n.handoverStuck(&handover, now, 2*interval); d > n.handoverLimit() {
			n.end(ExitHung, ErrHandoverStuck.Wrap(nil, "proposals have been refused for %s", d.Round(time.Millisecond)))
			return
		}
		d := apply.look(now, 2*interval)
		if d <= n.cfg.StallLimit {
			continue
		}
		e := ErrApplyStalled.Wrap(nil, "the state machine has not answered for %s", d.Round(time.Millisecond))
		n.fail(e)
		switch {
		case n.raft.State() != raft.Leader:
			leads = time.Time{}
		case leads.IsZero():
			leads = now
		case now.Sub(leads) > 3*n.cfg.Timers.ElectionTimeout:
			n.end(ExitHung, e)
			return
		}
	}
}

// end ends this node's part. Where Exit returned, it stops the heartbeats:
// closing the transport is the only way, as the library's own loop hangs.
func (n *Node) end(code int, e *cluster.Error) {
	n.fail(e)
	n.cfg.Exit(code, e.Error())
	if t, ok := n.cfg.Transport.(raft.WithClose); ok {
		_ = t.Close()
	}
}

// logBroken: the library panics on the error that follows, so the process goes
// down in order before it.
func (n *Node) logBroken(err error) {
	e := cluster.ErrStoreCorrupt.Wrap(err, "the log was damaged while in use")
	n.fail(e)
	n.cfg.Exit(ExitStorage, e.Error())
}

// logFailed: after any error but a lack of space it is not known what is on the
// disk, and a leader that goes on would acknowledge what is not.
func (n *Node) logFailed(err error) {
	e := cluster.ErrStoreFailed.Wrap(err, "a log write failed")
	if spaceMayReturn(err) {
		n.cfg.Logger.Error("log write failed", "code", e.Code, "error", err, "hint", e.Hint)
		return
	}
	n.fail(e)
	n.cfg.Exit(ExitStorage, e.Error())
}
