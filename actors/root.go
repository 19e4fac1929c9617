// The two upper supervisors: the root, whose death ends the process, and the coordination supervisor under it.

package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
)

// root keeps the coordination supervisor running. It never stops by itself.
type root struct {
	sys     *System
	rec     *record
	crashes failures
}

func (r *root) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.crashes.budget = r.sys.cfg.Budget
		r.rec = &record{path: pathCoordination, parent: pathRoot, kind: KindCoordination}
		props := r.sys.props(r.rec, func() actor.Actor { return &coordination{sys: r.sys, rec: r.rec} })
		if _, err := c.SpawnNamed(props, pathCoordination); err != nil {
			panic(fmt.Errorf("spawn the coordination supervisor: %w", err))
		}
	default:
		r.sys.ignored(r.rec, m)
	}
}

// HandleFailure restarts the coordination supervisor within the budget. Beyond
// it this node cannot control what it owns: the process ends.
func (r *root) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	switch {
	case r.sys.stopping.Load():
		sup.StopChildren(child) // a restart would revive what Stop has stopped
	case r.crashes.add(r.sys.cfg.Now()):
		r.rec.failed(reason, true)
		sup.RestartChildren(child)
	default:
		r.sys.die(fmt.Sprintf("the coordination supervisor failed more than %d times in %s: %v",
			r.crashes.budget.Restarts, r.crashes.budget.Window, reason))
	}
}

// die ends the process because the root cannot go on. What fails while the
// process ends adds nothing.
func (s *System) die(reason string) {
	s.death.Do(func() {
		s.log.Error("the root supervisor died; this process ends and another node takes its roles", "reason", reason)
		s.trace(trace.Exit, 0, 0, reason)
		s.cfg.Exit(ExitRootDied, reason)
	})
}

// coordination keeps the watcher, the leader supervisor and one supervisor for
// each role running.
type coordination struct {
	sys      *System
	rec      *record
	children []*subordinate
}

// subordinate is a child that coordination keeps running.
type subordinate struct {
	rec     *record
	seat    *seat // nil: not a role supervisor
	make    func(rec *record) actor.Actor
	running bool
	due     time.Time // not to be spawned before
	crashes failures
}

func (k *coordination) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		k.children = k.roster()
		k.spawnDue(c)
	case *tick:
		k.spawnDue(c)
	case *actor.Terminated:
		if s := k.find(m.Who); s != nil {
			s.running = false
		}
	default:
		k.sys.ignored(k.rec, m)
	}
}

// roster lists the children in the order they start; they stop in reverse, so
// the watcher, which is last, stops first.
func (k *coordination) roster() []*subordinate {
	var list []*subordinate
	add := func(path string, kind Kind, seat *seat, make func(*record) actor.Actor) {
		rec := &record{path: path, parent: pathCoordination, kind: kind}
		if seat != nil {
			rec.role = seat.spec.Role
		}
		list = append(list, &subordinate{rec: rec, seat: seat, make: make, crashes: failures{budget: k.sys.cfg.Budget}})
	}
	for _, seat := range k.sys.seats {
		add(rolePath(seat.spec.Role), KindRoleSupervisor, seat, func(rec *record) actor.Actor {
			return &roleSupervisor{sys: k.sys, rec: rec, seat: seat}
		})
	}
	if k.sys.cfg.Reconciler != nil {
		add(pathReconciler, KindReconciler, nil, func(rec *record) actor.Actor { return newReconciler(k.sys, rec) })
	}
	add(pathLeader, KindLeaderSupervisor, nil, func(rec *record) actor.Actor {
		return &leaderSupervisor{sys: k.sys, rec: rec}
	})
	add(pathWatcher, KindWatcher, nil, func(rec *record) actor.Actor { return &watcher{sys: k.sys, rec: rec} })
	return list
}

func (k *coordination) spawnDue(c actor.Context) {
	for _, s := range k.children {
		if s.running || k.sys.cfg.Now().Before(s.due) {
			continue
		}
		// A record for each spawn: the old one left the registry with its actor.
		s.rec = &record{path: s.rec.path, parent: s.rec.parent, kind: s.rec.kind, role: s.rec.role}
		rec := s.rec
		if _, err := c.SpawnNamed(k.sys.props(rec, func() actor.Actor { return s.make(rec) }), rec.path); err != nil {
			panic(fmt.Errorf("spawn %s: %w", rec.path, err))
		}
		s.running = true
	}
}

func (k *coordination) find(pid *actor.PID) *subordinate {
	for _, s := range k.children {
		if processID(s.rec.path) == pid.GetId() {
			return s
		}
	}
	return nil
}

// HandleFailure restarts a child within its budget. Beyond it, a role
// supervisor takes a pause of one window with its role given up, so the other
// roles go on (§143), and the reconciler, which no role needs, just a pause;
// without a watcher or leader supervisor no role can be controlled, so that
// failure goes up.
func (k *coordination) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, message any) {
	s := k.find(child)
	switch {
	case s == nil || k.rec.isLeaving():
		sup.StopChildren(child) // a restart would revive what is being stopped
	case s.crashes.add(k.sys.cfg.Now()):
		s.rec.failed(reason, true)
		sup.RestartChildren(child)
	case s.rec.kind == KindReconciler:
		k.suspend(s)
		sup.StopChildren(child)
	case s.seat != nil:
		k.suspend(s)
		if want := s.seat.wanted(k.sys.cfg.Trees); want != 0 {
			k.sys.report(s.seat.spec.Role, want, cluster.TreeFailed, CodeBudgetSpent,
				fmt.Sprintf("the role's supervisor failed more than %d times in %s: %v", s.crashes.budget.Restarts, s.crashes.budget.Window, reason))
		}
		sup.StopChildren(child)
	default:
		sup.EscalateFailure(reason, message)
	}
}

// suspend keeps a child down for one window; its budget begins anew.
func (k *coordination) suspend(s *subordinate) {
	s.crashes.reset()
	s.due = k.sys.cfg.Now().Add(s.crashes.budget.Window)
}
