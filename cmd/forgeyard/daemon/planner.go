// The planner of one leadership: cluster/placement with its memory, which the status shows.

package daemon

import (
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/placement"
	"github.com/forgeyard/forgeyard/fsm"
)

// planner plans for the leadership that is current, with a fresh memory for each.
type planner struct {
	self fsm.NodeID
	now  func() time.Time

	mu      sync.Mutex
	since   time.Time
	backoff placement.Backoff
}

// begin forgets the former leadership.
func (p *planner) begin() actors.Planner {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.backoff = p.now(), placement.Backoff{}
	return p
}

// Plan returns the commands to propose now.
func (p *planner) Plan(view cluster.View, reports []cluster.NodeReport, now time.Time) []fsm.Command {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmds, next := placement.Plan(placement.Input{
		View: view.View, Self: p.self, Reports: reports, Now: now, LeadingSince: p.since, Backoff: p.backoff,
	})
	p.backoff = next
	return cmds
}

// delays are the back-offs that run now.
func (p *planner) delays() []placement.Delay {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backoff.Delays(p.now())
}
