// Figures: what /metrics shows of coordination and of the job plane, and where it is counted.

package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/obs"
	"github.com/forgeyard/forgeyard/roles/store"
)

// figures are counted where things pass; the rest is read at each scrape.
type figures struct {
	fences    *obs.Fences
	guards    *obs.Guards
	proposals *obs.Proposals
}

func newFigures(out Outside) figures {
	return figures{
		fences: obs.NewFences(obs.NoSpans, out.Logger), guards: obs.NewGuards(out.Tracer), proposals: obs.NewProposals(obs.NoSpans, out.Now),
	}
}

// fenced counts one fenced operation of the store (§250).
func (f figures) fenced(ctx context.Context, op store.Operation) {
	f.fences.Observe(ctx, obs.FencedOperation{
		Kind: string(op.Kind), Role: op.Role, Generation: op.Generation, Epoch: op.Epoch,
		Began: op.Began, Took: op.Took, Outcome: op.Outcome.String(), Err: op.Err,
	})
}

// collectors are all figures but those of the process and of the API.
func (d *Daemon) collectors() []prometheus.Collector {
	all := []prometheus.Collector{
		d.figures.fences, d.figures.guards, d.figures.proposals,
		obs.NewRaft(d.engine, d.out.Now), obs.NewRoles(d.backend, func() []cluster.RoleStatus { return d.service.Status() }),
		obs.NewHealth(d.observer), obs.NewFindings(d.reconciler.Last), d.system.Collector(),
	}
	all = append(all, d.scheduler.Collectors()...)
	all = append(all, d.sessions.Collectors()...)
	if d.content != nil {
		all = append(all, d.content.transfers.Collectors()...)
	}
	return all
}
