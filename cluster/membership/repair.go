// Repair: the leader finishes what was committed but not carried out, also by a leader that crashed in between (§240).

package membership

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
)

// Pace of the repair loop, under the hints that wake it.
const (
	repairInterval = 250 * time.Millisecond // while a step is left to do
	repairReload   = 2 * time.Second        // otherwise: a lost hint only delays
)

// repairLoop looks at the committed members whenever they change, a joiner
// announces itself, or some time has passed, which is short only while a leader
// has something to finish. It never guesses: every step follows from a member's
// committed role and state.
//
//	committed            library's configuration     step
//	Learner Joining      absent                      dial it, then AddNonvoter
//	Learner Joining      nonvoter, caught up         UpdateMember Active
//	Voter                nonvoter                    AddVoter
func (r *Registrar) repairLoop(ctx context.Context) {
	changed, unsubscribe := r.cfg.Engine.Changes()
	defer unsubscribe()
	again := time.NewTimer(repairReload)
	defer again.Stop()
	for {
		pause := repairReload
		if _, leads := r.cfg.Engine.Leadership(); leads && r.repair(ctx) {
			pause = repairInterval
		}
		again.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-changed:
		case <-r.poke:
		}
	}
}

// repair takes the steps that can be taken now; unfinished tells that it found any to take.
func (r *Registrar) repair(ctx context.Context) (unfinished bool) {
	suffrage := r.cfg.Engine.Suffrage()
	var absent []fsm.Member
	for _, m := range r.cfg.Engine.View().Members {
		switch {
		case m.Role == fsm.Voter && slices.Contains(suffrage.Nonvoters, m.Node):
			r.try(m, "give the vote", r.cfg.Engine.AddVoter(ctx, m.Node))
		case m.Role == fsm.Learner && m.State == fsm.Joining && !suffrage.Contains(m.Node):
			absent = append(absent, m)
		case m.Role == fsm.Learner && m.State == fsm.Joining:
			r.activate(ctx, m)
		default:
			continue
		}
		unfinished = true
	}
	for _, m := range r.listening(ctx, absent) {
		r.try(m, "send the log", r.cfg.Engine.AddNonvoter(ctx, m.Node))
	}
	return unfinished
}

// activate makes a joiner Active once it has caught up and reports its health.
func (r *Registrar) activate(ctx context.Context, m fsm.Member) {
	if CaughtUp(r.progress(m)) != nil {
		return
	}
	_, err := r.propose(ctx, fsm.UpdateMember{Node: m.Node, ExpectedIncarnation: m.Incarnation, State: fsm.Active})
	r.try(m, "make active", err)
}

// listening dials all of them at once; the transport proves that the expected
// certificate answers. Silent ones cost one bound together.
func (r *Registrar) listening(ctx context.Context, members []fsm.Member) []fsm.Member {
	answered := make([]bool, len(members))
	var calls sync.WaitGroup
	for i, m := range members {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, reachBound)
			defer cancel()
			var reply hereReply
			err := r.cfg.Control.Call(ctx, m.Node, transport.FamilyControl, methodHere, nil, &reply)
			answered[i] = err == nil
		})
	}
	calls.Wait()
	var out []fsm.Member
	for i, m := range members {
		if answered[i] {
			out = append(out, m)
		}
	}
	return out
}

func (r *Registrar) try(m fsm.Member, step string, err error) {
	switch {
	case err == nil:
		r.cfg.Logger.Info("membership step done", "step", step, "node", m.Node, "name", m.Name)
	case isConflict(err):
		r.cfg.Logger.Debug("membership step waits", "step", step, "node", m.Node, "error", err)
	default:
		r.cfg.Logger.Warn("membership step failed", "step", step, "node", m.Node, "name", m.Name, "error", err)
	}
}
