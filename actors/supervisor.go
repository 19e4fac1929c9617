// The role supervisor: at most one tree of its role in this process, and the next one only after the old one's end.

package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// The codes of a role that was given up.
const (
	CodeBudgetSpent  = "FY-ROLE-010" // the restart budget of the role or of a loop is spent
	CodeNotActive    = "FY-ROLE-011" // raising the fence or reconciling failed for too long
	CodeNodeStopping = "FY-ROLE-012" // the node stops
	CodeStuck        = "FY-ROLE-015" // a loop can do nothing on this node
)

// treeEnded tells the supervisor that a tree and all its loops have ended.
type treeEnded struct{ epoch fsm.Epoch }

// roleSupervisor brings the role's seat to what the service wants, whenever
// something may have changed. What must outlive it is in the seat.
type roleSupervisor struct {
	sys   *System
	rec   *record
	seat  *seat
	child *actor.PID // until its Terminated
}

func (r *roleSupervisor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started, *spawn, *poison, *treeEnded:
		r.converge(c)
	case *actor.Terminated:
		r.child = nil
		if !r.rec.isLeaving() { // spawning while stopping would hang the stop
			r.converge(c)
		}
	default:
		r.sys.ignored(r.rec, m)
	}
}

func (r *roleSupervisor) converge(c actor.Context) {
	want := r.seat.wanted(r.sys.cfg.Trees)
	switch step, t := r.seat.decide(want); step {
	case stepPoison:
		t.poison()
	case stepSpawn:
		if r.child != nil {
			return // its Terminated comes and converges again
		}
		r.spawn(c, want)
	}
}

func (r *roleSupervisor) spawn(c actor.Context, epoch fsm.Epoch) {
	t := r.seat.take(func() *tree { return newTree(r.sys, r.seat, epoch) })
	if t == nil {
		return
	}
	pid, err := c.SpawnNamed(r.sys.props(t.rec, func() actor.Actor { return &roleActor{tree: t} }), fmt.Sprint(epoch))
	if err != nil {
		t.giveUp(CodeNotActive, fmt.Sprintf("the role actor could not be spawned: %v", err))
		t.life.leave()
		return
	}
	r.child = pid
}

// HandleFailure never restarts a role actor in place. It stops, its epoch is
// spent, and a new tree starts under the next one; beyond the budget the role
// is given up (§143).
func (r *roleSupervisor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	if t := r.seat.crashed(child); t != nil {
		again := r.seat.failed(r.sys.cfg.Now(), r.sys.cfg.Budget)
		r.rec.failed(reason, again)
		if again {
			t.abandon(fmt.Errorf("the role actor panicked: %v", reason))
		} else {
			t.giveUp(CodeBudgetSpent, fmt.Sprintf("the role actor panicked more than %d times in %s: %v",
				r.sys.cfg.Budget.Restarts, r.sys.cfg.Budget.Window, reason))
		}
	}
	sup.StopChildren(child)
}

// report tells the service what happened to a tree.
func (s *System) report(role fsm.Role, epoch fsm.Epoch, ev cluster.TreeEvent, code, reason string) {
	s.cfg.Trees.Report(role, epoch, ev, code, reason)
}
