// Planners: what a coordination leader executes, and the one of cluster/placement, whose memory the status shows.

package actors

import (
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/fsm"
)

// Planner decides which process owns which role. One Planner serves one
// leadership and may remember what it saw in it; it is called from one goroutine.
type Planner interface {
	// Plan returns the commands to propose now, in order.
	Plan(view cluster.View, reports []cluster.NodeReport, now time.Time) []fsm.Command
	// Settled reports whether the next plan may wait for the next view, or
	// Config.Reload: no silence or back-off that ends meanwhile would change it.
	Settled(view cluster.View, reports []cluster.NodeReport) bool
}

// Placement is the Planner that a process places roles with. It plans for the
// leadership that is current and forgets the former one.
type Placement struct {
	self fsm.NodeID
	now  func() time.Time

	mu      sync.Mutex
	since   time.Time // when this leadership began
	backoff placement.Backoff
}

// NewPlacement makes the planner of this node; now must carry a monotonic reading.
func NewPlacement(self fsm.NodeID, now func() time.Time) *Placement {
	return &Placement{self: self, now: now}
}

// Begin starts a leadership; it is what Config.NewPlanner is given.
func (p *Placement) Begin() Planner {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.backoff = p.now(), placement.Backoff{}
	return p
}

// Plan implements Planner.
func (p *Placement) Plan(view cluster.View, reports []cluster.NodeReport, now time.Time) []fsm.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmds, next := placement.Plan(placement.Input{
		View: view.View, Self: p.self, Reports: reports, Now: now, LeadingSince: p.since, Backoff: p.backoff,
	})
	p.backoff = next
	return cmds
}

// Settled implements Planner.
func (p *Placement) Settled(view cluster.View, reports []cluster.NodeReport) bool {
	return placement.Settled(placement.Input{View: view.View, Self: p.self, Reports: reports})
}

// Delays are the back-offs that run now, for introspection.
func (p *Placement) Delays() []placement.Delay {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backoff.Delays(p.now())
}
