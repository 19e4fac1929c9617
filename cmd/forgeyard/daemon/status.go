// What this node knows of the cluster, and how followers ask the leader for what only it knows.

package daemon

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/transport"
)

// Control methods of the status model. Facts travel as JSON, the form in which
// the API shows them.
const (
	methodFacts = "facts"
	methodEcho  = "echo"
)

// observe starts to watch leader and members.
func (d *Daemon) observe(report func() cluster.HealthReport) {
	_, election, _ := d.cfg.Cluster.Timers.Scaled()
	cfg := health.Config{Coordination: d.backend, Own: report, Backoff: d.planner.Delays, Election: election, Now: d.out.Now}
	if d.endpoint != nil {
		cfg.Ask, cfg.Probe = d.askFacts, d.echo
	}
	d.observer = health.New(cfg)
	if d.endpoint != nil {
		d.endpoint.Handle(transport.FamilyControl, methodFacts, func(context.Context, transport.Peer, []byte) (any, error) {
			return json.Marshal(d.observer.Facts())
		})
		d.endpoint.Handle(transport.FamilyControl, methodEcho, func(context.Context, transport.Peer, []byte) (any, error) {
			return true, nil
		})
	}
	d.background("observer", func(ctx context.Context) error {
		d.observer.Run(ctx)
		return nil
	})
}

// signs is what audit records name: this node, under the epoch it knows.
func (d *Daemon) signs() (fsm.NodeID, fsm.Epoch) { return d.self.Node, d.backend.View().Epoch }

// Scheduler tells whether somebody schedules now, and why not when nobody does.
func (d *Daemon) Scheduler() scheduler.RoleState {
	status := health.Build(d.observer.Observe(d.ctx))
	for _, row := range status.RoleRows {
		if row.Role != fsm.SchedulerLeader {
			continue
		}
		state := scheduler.RoleState{Active: row.Active == health.Yes, Owner: row.OwnerName, Reason: row.Why}
		if status.Headline == health.NoQuorum {
			state.Active, state.Reason = false, strings.Join(status.Reasons, "; ")
		}
		return state
	}
	return scheduler.RoleState{Reason: "no node has ever been given the role"}
}

func (d *Daemon) askFacts(ctx context.Context, leader fsm.NodeID) (health.Facts, error) {
	var text []byte
	var f health.Facts
	if err := d.endpoint.Call(ctx, leader, transport.FamilyControl, methodFacts, true, &text); err != nil {
		return f, err
	}
	return f, json.Unmarshal(text, &f)
}

func (d *Daemon) echo(ctx context.Context, n fsm.NodeID) error {
	var yes bool
	return d.endpoint.Call(ctx, n, transport.FamilyControl, methodEcho, true, &yes)
}
