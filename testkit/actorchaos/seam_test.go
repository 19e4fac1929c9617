// Seams around the real parts: where faults come in that a standalone node does not have by itself.

package actorchaos

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/fsm"
)

// backend is the standalone engine behind knobs.
type backend struct {
	*local.Backend

	mu          sync.Mutex
	confirmed   time.Time // the last confirmation while contact is lost; zero: in contact
	generations fsm.Generation
}

// lose takes contact away, as a node that is cut off has it.
func (b *backend) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirmed = time.Now()
}

func (b *backend) regain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirmed = time.Time{}
}

// regenerate shows every later view in the next generation, as a recovered cluster does.
func (b *backend) regenerate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generations++
}

func (b *backend) Confirmed() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.confirmed.IsZero() {
		return b.confirmed
	}
	return b.Backend.Confirmed()
}

func (b *backend) View() cluster.View {
	v := b.Backend.View()
	v.Confirmed = b.Confirmed()
	b.mu.Lock()
	defer b.mu.Unlock()
	v.Generation += b.generations
	return v
}

// Propose fails without contact, as the engine of a fleet does.
func (b *backend) Propose(ctx context.Context, p fsm.Proposal) (cluster.Commit, error) {
	b.mu.Lock()
	lost := !b.confirmed.IsZero()
	b.mu.Unlock()
	if lost {
		return cluster.Commit{}, cluster.ErrNoQuorum
	}
	return b.Backend.Propose(ctx, p)
}

// trees is the service as the actor system sees it; it can refuse one guard.
type trees struct {
	cluster.Trees

	mu     sync.Mutex
	refuse fsm.Role
}

// refuseNext makes the next tree of a role find no guard, so that it ends by itself.
func (t *trees) refuseNext(role fsm.Role) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = role
}

func (t *trees) AcquireRole(ctx context.Context, role fsm.Role) (cluster.RoleGuard, error) {
	t.mu.Lock()
	refuse := t.refuse == role
	if refuse {
		t.refuse = 0
	}
	t.mu.Unlock()
	if refuse {
		return cluster.RoleGuard{}, cluster.ErrNotOwner
	}
	return t.Trees.AcquireRole(ctx, role)
}

// planner is cluster/placement without its memory of failures: the test is about
// how roles end, not about how long they wait. It can hold its plans back.
type planner struct{ held atomic.Bool }

func (p *planner) begin() actors.Planner { return p }

func (p *planner) hold(yes bool) { p.held.Store(yes) }

func (p *planner) Plan(view cluster.View, reports []cluster.NodeReport, now time.Time) []fsm.Command {
	if p.held.Load() {
		return nil
	}
	cmds, _ := placement.Plan(placement.Input{
		View: view.View, Self: view.Leader, Reports: reports, Now: now, LeadingSince: now,
	})
	return cmds
}

// Settled is false: a plan that was held back must not wait for news.
func (p *planner) Settled(cluster.View, []cluster.NodeReport) bool { return false }
