// Roles: the coordination service, the job plane's coordinator, and the actor system that supervises both.

package daemon

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/reconcile"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

// startRoles begins to follow the committed views. The reporter is set before
// the backend's first ping can carry a report.
func (d *Daemon) startRoles(context.Context) error {
	d.planJobs()
	specs := d.runnable([]actors.RoleSpec{d.scheduler.Spec()})
	roles := make([]fsm.Role, len(specs))
	for i, s := range specs {
		roles[i] = s.Role
	}
	d.service = cluster.NewService(cluster.ServiceConfig{
		Backend: d.backend, Tracer: d.figures.guards, Logger: d.log, Now: d.out.Now, Exit: d.out.Exit, Roles: roles,
	})
	report := func() cluster.HealthReport { return d.report(roles) }
	d.backend.SetReporter(report)
	d.planner = actors.NewPlacement(d.self.Node, d.out.Now)
	d.observe(report)
	d.reconciler = reconcile.New(reconcile.Config{Coordination: d.backend, Database: d.store, Logger: d.log, Now: d.out.Now})
	cfg := d.out.Actors
	cfg.Trees, cfg.Backend, cfg.Roles, cfg.NewPlanner = d.service, d.backend, specs, d.planner.Begin
	cfg.Reconciler = d.reconciler
	cfg.Tracer, cfg.Logger, cfg.Now, cfg.Exit = d.figures.guards, d.log, d.out.Now, d.out.Exit
	system, err := actors.Start(cfg)
	if err != nil {
		return err
	}
	d.system = system
	d.service.Start()
	return nil
}

// planJobs makes the two sides of the job plane and connects what one does with
// who has to look at it, on this daemon and on the others.
func (d *Daemon) planJobs() {
	d.hub = events.NewHub(d.store, d.bus, d.log)
	links := runner.SessionsConfig{Store: d.store.LeaseWork(), Node: d.self.Node.String(), Wake: func() { d.bus.Notify(events.Work) }, Logger: d.log}
	if d.content != nil {
		links.Transfers = d.content.transfers
	}
	schedule := d.out.Scheduler
	if schedule.LeaseTTL > 0 {
		links.Timing = runner.Timing{LeaseTTL: schedule.LeaseTTL, Heartbeat: schedule.LeaseTTL / beatsPerLease}
	}
	d.sessions = runner.NewSessions(links)
	schedule.Store, schedule.Logger = d.store, d.log
	schedule.Retention.Runs, schedule.Retention.Outbox = d.cfg.Retention.Runs, d.cfg.Retention.Events
	schedule.Dispatched = func() { d.bus.Notify(events.Orders) }
	schedule.Hold = d.holdsScheduling
	d.scheduler = scheduler.New(schedule)
	d.bus.Subscribe(events.Work, d.scheduler.Wake)
	d.bus.Subscribe(events.Cancels, d.scheduler.Wake)
	d.bus.Subscribe(events.Orders, d.sessions.Wake)
	d.bus.Subscribe(events.Cancels, d.sessions.Wake)
	d.background("events", d.hub.Run)
	d.background("projection", events.NewProjector(d.backend, d.store, d.bus, d.log).Run)
	if !d.out.Polling {
		d.background("wake-ups", events.NewNotifier(d.bus, d.store, d.self.Incarnation.String(), d.log).Run)
	}
}

// holdsScheduling names the maintenance state that forbids to lease; "" when none does (§129).
func (d *Daemon) holdsScheduling() string {
	switch m := d.backend.View().Maintenance; m {
	case fsm.ReadOnly, fsm.NoScheduling, fsm.FullMaintenance:
		return "the cluster is in maintenance: " + m.String()
	}
	return ""
}

// releaseBound is how long a stopping daemon tries to release its roles and to
// hand leadership over. Without a quorum neither is possible; the leader to come
// vacates the roles of a silent node anyway.
const releaseBound = 2 * time.Second

// stopRoles revokes every guard, ends the trees and the actor system, and hands
// leadership over. It runs before everything else stops, so that roles are
// released and not lost.
func (d *Daemon) stopRoles(ctx context.Context) error {
	if d.system == nil {
		return nil
	}
	d.leaving.Store(true)
	release, cancel := context.WithTimeout(ctx, releaseBound)
	defer cancel()
	if err := d.service.Close(release); err != nil {
		d.log.Warn("roles were not released; the fleet vacates them", "error", err)
	}
	if _, leads := d.backend.Leadership(); leads {
		if err := d.backend.StepDown(release, "the daemon stops"); err != nil {
			d.log.Info("leadership was not handed over", "error", err)
		}
	}
	return d.system.Stop(ctx)
}

// runnable keeps the roles that the configuration lets this daemon run.
func (d *Daemon) runnable(specs []actors.RoleSpec) []actors.RoleSpec {
	var out []actors.RoleSpec
	for _, s := range specs {
		for _, r := range d.cfg.Roles {
			if s.Role == r {
				out = append(out, s)
			}
		}
	}
	return out
}

// report is what this node tells the leader with every ping. A node that stops
// runs no role any more, or the leader would hand it back what it has released.
func (d *Daemon) report(roles []fsm.Role) cluster.HealthReport {
	writable, since := d.store.Writable()
	if d.leaving.Load() {
		roles = nil
	}
	return cluster.HealthReport{
		Node: d.self.Node, Incarnation: d.self.Incarnation, PGWritable: writable, PGWritableFor: since,
		RunnableRoles: roles, AppliedIndex: d.backend.View().Index, Roles: d.service.Status(),
	}
}
