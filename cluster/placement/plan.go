// Package placement decides which process owns which role (§40–§42). It is
// pure: the coordination leader executes what it returns.
package placement

import (
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of placement.
const (
	// ReportFresh is how old a node's report may be for the node to be given a role.
	ReportFresh = time.Second
	// StartWait is how long a new leader that cannot run a role itself waits for
	// reports before it looks for another node.
	StartWait = 300 * time.Millisecond
	// PostgresGrace is how long an owner may be without a writable PostgreSQL
	// before a role moves to a node that has one. Shorter faults move nothing.
	PostgresGrace = 5 * time.Second
)

// Input is everything a plan depends on.
type Input struct {
	View         fsm.View
	Self         fsm.NodeID           // the planning node; it plans only while View names it as leader
	Reports      []cluster.NodeReport // newest report of each node, this one included
	Now          time.Time            // monotonic
	LeadingSince time.Time            // when this leadership began
	Backoff      Backoff              // what the plan before returned; zero at first
}

// Plan returns at most one command for each role, with exact expected epochs,
// and what the next plan must be given as Backoff. It changes nothing it was
// given. A plan that is overtaken by another commit is refused by Apply.
func Plan(in Input) (cmds []fsm.Command, next Backoff) {
	if in.View.Leader != in.Self || in.View.LeaderEpoch.Epoch == 0 {
		return nil, in.Backoff
	}
	p := planner{Input: in, reports: make(map[fsm.NodeID]cluster.NodeReport, len(in.Reports))}
	for _, r := range in.Reports {
		p.reports[r.Node] = r
	}
	p.Backoff = in.Backoff.observe(&p)
	for _, role := range fsm.Roles() {
		if cmd := p.decide(role); cmd != nil {
			cmds = append(cmds, cmd)
		}
	}
	return cmds, p.Backoff
}

// Settled reports whether without a new view only InactiveBound can change the
// plan: the planning node, itself Active, holds every role that any node can
// run, and can write to PostgreSQL. It needs no Now. Owners elsewhere may fall
// silent, and a vacant role waits for reports and back-offs.
func Settled(in Input) bool {
	self, _ := in.View.Member(in.Self)
	wanted := map[fsm.Role]bool{}
	writable := false
	for _, r := range in.Reports {
		for _, role := range r.RunnableRoles {
			wanted[role] = true
		}
		writable = writable || r.Node == in.Self && r.PGWritable
	}
	for _, role := range fsm.Roles() {
		g := in.View.Role(role)
		if g.Vacant() && !wanted[role] {
			continue
		}
		if !g.HeldBy(self.Node, self.Incarnation) || g.Epoch < in.View.LeaderEpoch.Epoch {
			return false
		}
	}
	return writable && self.State == fsm.Active
}

type planner struct {
	Input
	reports map[fsm.NodeID]cluster.NodeReport
}

// decide judges one role. The first line that holds decides:
//
//	released with the database ahead            nothing, until an operator acts
//	vacant, or granted before this leadership   assign to the candidate
//	- no candidate, the leadership has just begun   wait
//	- no candidate, owned                           vacate: unplaceable
//	owner silent                                vacate
//	not Active for too long                     vacate
//	owner not Active in the membership          assign to another candidate, if any
//	owner without PostgreSQL for too long       vacate, if there is another candidate
//	otherwise                                   nothing: placement is sticky
//
// A vacated role is vacant in the next plan, which assigns it: the reason is
// committed first, so that operators can read why a role moved.
func (p *planner) decide(role fsm.Role) fsm.Command {
	g := p.View.Role(role)
	if p.held(g) {
		return nil
	}
	if g.Vacant() || g.Epoch < p.View.LeaderEpoch.Epoch {
		return p.place(g)
	}
	if d := p.silence(g); d > cluster.OwnerSilence {
		return p.vacate(g, CodeOwnerSilent, "no sign of life from the owner for %s", d)
	}
	if d := p.Backoff.inactive(role, p.Now); d > cluster.InactiveBound {
		return p.vacate(g, CodeInactive, "the role was not active for %s after it was granted or last active", d)
	}
	other, found := p.candidate(role, g.Owner)
	if !found {
		return nil
	}
	if m, _ := p.View.Member(g.Owner); m.State != fsm.Active {
		return p.assign(g, other)
	}
	if d := p.Backoff.withoutPostgres(g.Owner, p.Now); d > PostgresGrace {
		return p.vacate(g, CodeNoPostgres, "the owner had no writable PostgreSQL for %s and another node has one", d)
	}
	return nil
}

// held reports whether the role's last owner found the database fence above its
// epoch. Each new grant would come closer to that fence and in the end stand above it.
func (p *planner) held(g fsm.RoleGrant) bool {
	x, released := p.View.Release(g.Role)
	return released && g.Vacant() && x.Epoch == g.Epoch && x.Code == cluster.CodeDatabaseAhead
}

// place finds an owner for a role that nobody owns under this leadership.
func (p *planner) place(g fsm.RoleGrant) fsm.Command {
	c, found := p.candidate(g.Role, fsm.NodeID{})
	young := p.Now.Sub(p.LeadingSince) < StartWait
	if found && (c.Node == p.Self || !young) {
		return p.assign(g, c)
	}
	if g.Vacant() || young {
		return nil
	}
	return p.vacate(g, CodeUnplaceable, "after the change of leader no node can run the role")
}

// candidate returns the member that should get the role: the leader if it can
// run it, else the first other node in id order, so that roles stay together.
func (p *planner) candidate(role fsm.Role, except fsm.NodeID) (fsm.Member, bool) {
	var best fsm.Member
	for _, m := range p.View.Members {
		if m.Node == except || !p.eligible(m, role) {
			continue
		}
		if m.Node == p.Self {
			return m, true
		}
		if best.Node.IsZero() {
			best = m
		}
	}
	return best, !best.Node.IsZero()
}

// eligible: an Active Voter whose present process says, freshly, that it can
// write to PostgreSQL and run the role, and that is not backed off from it.
func (p *planner) eligible(m fsm.Member, role fsm.Role) bool {
	r, ok := p.report(m)
	return ok && m.Role == fsm.Voter && m.State == fsm.Active &&
		p.Now.Sub(r.Received) < ReportFresh && r.PGWritable && runs(r, role) &&
		!p.Backoff.blocks(role, m.Node, p.Now)
}

// report returns the newest report of a member's committed process.
func (p *planner) report(m fsm.Member) (cluster.NodeReport, bool) {
	r, ok := p.reports[m.Node]
	return r, ok && r.Incarnation == m.Incarnation
}

func runs(r cluster.NodeReport, role fsm.Role) bool {
	for _, x := range r.RunnableRoles {
		if x == role {
			return true
		}
	}
	return false
}

// silence is how long the owner has not been heard of. A new leader starts to
// count when it begins to lead; it needs no ping from itself.
func (p *planner) silence(g fsm.RoleGrant) time.Duration {
	if g.Owner == p.Self {
		return 0
	}
	last := p.LeadingSince
	m, _ := p.View.Member(g.Owner)
	if r, ok := p.report(m); ok && r.Received.After(last) {
		last = r.Received
	}
	return p.Now.Sub(last)
}
