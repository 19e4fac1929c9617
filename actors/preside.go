// What a coordination leader does: begin its leadership by a committed epoch, then execute plans.

package actors

import (
	"context"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// refusedRest is the least time between a proposal that failed, for whatever reason, and the next.
const refusedRest = 50 * time.Millisecond

// announceBound is how long a leader waits for its own process to be announced:
// two attempts that hang to their end. Who cannot be announced, as a build that
// the cluster has outgrown, must not keep the office from those who can.
const announceBound = 2*cluster.DefaultRequestTimeout + time.Second

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
		if m, member := view.Member(l.sys.self.Node); member && m.Incarnation != l.sys.self.Incarnation {
			// Elected before this process was announced: its epoch would be refused until then.
			if waited := l.sys.cfg.Now().Sub(began); waited > announceBound {
				l.sys.stepDown(fmt.Sprintf("the members do not show this process %s after its election", waited.Round(time.Second)))
				began = l.sys.cfg.Now()
			}
			if !l.wait(0, l.sys.cfg.Tick) {
				return false
			}
			continue
		}
		begin := fsm.BumpEpoch{
			Term: l.term, ExpectedEpoch: view.LeaderEpoch.Epoch,
			Node: l.sys.self.Node, Incarnation: l.sys.self.Incarnation,
		}
		if p.Command != begin {
			p = fsm.Proposal{Request: cluster.NewRequestID(), Command: begin}
		}
		commit, _ := l.propose(p)
		if !l.wait(commit.Index, l.sys.cfg.Tick) {
			return false
		}
	}
	return false
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
