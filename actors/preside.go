// What a coordination leader does: begin its leadership by a committed epoch, then execute plans.

package actors

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// refusedRest is the least time between a proposal that failed, for whatever reason, and the next.
const refusedRest = 50 * time.Millisecond

// beginBound is how long an elected leader may take to begin: two attempts that
// hang to their end. Who cannot, as a build that the cluster has outgrown or a
// node that is no member, must not keep the office from those who can.
const beginBound = 2*cluster.DefaultRequestTimeout + time.Second

// preside leads the term until it ends.
func (l *lead) preside() error {
	if !l.inaugurate() {
		return nil
	}
	planner := l.sys.cfg.NewPlanner()
	for l.leading() {
		view := l.sys.cfg.Backend.View()
		if !l.inOffice(view) {
			return nil // another leader has begun
		}
		var seen uint64
		reports := l.sys.cfg.Backend.Reports()
		for _, cmd := range planner.Plan(view, reports, l.sys.cfg.Now()) {
			commit, ok := l.propose(fsm.Proposal{Request: cluster.NewRequestID(), Command: cmd})
			if !ok {
				break // what it saw has changed, or nothing commits now: plan anew
			}
			seen = max(seen, commit.Index)
		}
		pace := l.sys.cfg.Tick
		if seen == 0 && planner.Settled(view, reports) {
			pace = l.sys.cfg.Reload
		}
		if !l.wait(seen, pace) {
			return nil
		}
	}
	return nil
}

// inaugurate proposes this leadership's epoch until the view shows it. An
// attempt with an unknown outcome is repeated under its request id, so that it
// is applied once; a view that moved on needs another proposal.
func (l *lead) inaugurate() bool {
	var p fsm.Proposal
	began := l.sys.cfg.Now()
	for l.leading() {
		view := l.sys.cfg.Backend.View()
		if l.inOffice(view) {
			l.sys.log.Info("coordination leadership begins", "term", l.term, "epoch", view.LeaderEpoch.Epoch)
			return true
		}
		if waited := l.sys.cfg.Now().Sub(began); waited > beginBound {
			l.cannotBegin(view, waited)
			began = l.sys.cfg.Now()
		}
		applied := uint64(0)
		if l.announced(view) {
			begin := fsm.BumpEpoch{
				Term: l.term, ExpectedEpoch: view.LeaderEpoch.Epoch,
				Node: l.sys.self.Node, Incarnation: l.sys.self.Incarnation,
			}
			if p.Command != begin {
				p = fsm.Proposal{Request: cluster.NewRequestID(), Command: begin}
			}
			commit, _ := l.propose(p)
			applied = commit.Index
		}
		if !l.wait(applied, l.sys.cfg.Tick) {
			return false
		}
	}
	return false
}

// cannotBegin hands the leadership to another member, where there is one.
func (l *lead) cannotBegin(view cluster.View, waited time.Duration) {
	reason := fmt.Sprintf("its epoch is not committed %s after its election", waited.Round(time.Second))
	if !l.announced(view) {
		reason = fmt.Sprintf("the members do not show this process %s after its election", waited.Round(time.Second))
	}
	if slices.ContainsFunc(view.Members, func(m fsm.Member) bool { return m.Node != l.sys.self.Node }) {
		l.sys.stepDown(reason)
		return
	}
	l.sys.log.Error("coordination leadership does not begin, and no other member could take it", "term", l.term, "reason", reason)
}

// announced reports whether the members show this process: who was elected before that
// is so would have its epoch refused, and each refusal is an entry.
func (l *lead) announced(view cluster.View) bool {
	m, member := view.Member(l.sys.self.Node)
	return member && m.Incarnation == l.sys.self.Incarnation
}

func (l *lead) inOffice(v cluster.View) bool {
	return v.LeaderEpoch.Term == l.term && v.Leader == l.sys.self.Node && v.LeaderInc == l.sys.self.Incarnation
}

func (l *lead) leading() bool {
	leadership, ok := l.sys.cfg.Backend.Leadership()
	return ok && leadership.Term == l.term && l.ctx.Err() == nil
}

func (l *lead) propose(p fsm.Proposal) (cluster.Commit, bool) {
	ctx, cancel := context.WithTimeout(l.ctx, cluster.DefaultRequestTimeout)
	defer cancel()
	commit, err := l.sys.cfg.Backend.Propose(ctx, p)
	if err != nil && l.ctx.Err() == nil {
		l.rec.failed(err, false)
		l.sys.log.Warn("proposal of the coordination leader failed", "term", l.term, "command", typeName(p.Command), "error", err)
		// A refused command is an entry too: it changes the view, which wakes this loop.
		rest := time.NewTimer(min(refusedRest, l.sys.cfg.Tick))
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-l.ctx.Done():
		}
	}
	return commit, err == nil
}

// wait returns true at the next tick, or once the pace has passed, when the view
// shows everything up to index: a plan from an older view would propose the same again.
func (l *lead) wait(index uint64, pace time.Duration) bool {
	again := time.NewTicker(pace)
	defer again.Stop()
	for {
		select {
		case <-l.wake:
		case <-again.C:
		case <-l.ctx.Done():
			return false
		}
		if l.sys.cfg.Backend.View().Index >= index {
			return true
		}
	}
}
