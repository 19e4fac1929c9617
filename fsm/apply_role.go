// Commands about roles: assignment, renewal, release, and the leadership that may assign.

package fsm

import "slices"

// Release codes that Apply itself records when it vacates a role.
const (
	CodeIncarnationEnded = "FY-ROLE-020" // the owner restarted
	CodeMemberRemoved    = "FY-ROLE-021" // the owner was removed
)

func (c AssignRole) apply(b *body, _ entry) (Result, *Rejection) {
	if rej := b.expectLeader(c.Leader); rej != nil {
		return Result{}, rej
	}
	if g := b.grant(c.Role); g.Epoch != c.ExpectedEpoch {
		return Result{}, staleEpoch(c.Role.String(), c.ExpectedEpoch, g.Epoch)
	}
	m, rej := b.process(c.Owner, c.Incarnation)
	if rej != nil {
		return Result{}, rej
	}
	if m.Role != Voter || m.State != Active {
		return Result{}, reject(RejectMember, "node %s is %s %s; only an Active Voter owns a role", m.Node, m.State, m.Role)
	}
	g := RoleGrant{Role: c.Role, Epoch: b.take(), Owner: c.Owner, Incarnation: c.Incarnation}
	b.setGrant(g)
	return Result{Epoch: g.Epoch}, nil
}

func (c BumpEpoch) apply(b *body, e entry) (Result, *Rejection) {
	if c.Role == 0 {
		return c.beginLeadership(b, e)
	}
	return c.renewGrant(b)
}

// beginLeadership commits the LeaderEpoch of a new leadership, once per term
// (§24). Raft alone decides who leads, so any member process may begin one, but
// only inside the term it leads: a proposal that a later leader appended is
// refused. Repeating it in the same term by the same process changes nothing.
func (c BumpEpoch) beginLeadership(b *body, e entry) (Result, *Rejection) {
	if _, rej := b.process(c.Node, c.Incarnation); rej != nil {
		return Result{}, rej
	}
	now := b.Leader
	if c.Term != e.Term || c.Term < now.Epoch.Term {
		r := reject(RejectStaleLeader, "term %d is over: the entry is of term %d and the leadership of term %d", c.Term, e.Term, now.Epoch.Term)
		r.Current = now.Epoch.Epoch
		return Result{}, r
	}
	if c.Term == now.Epoch.Term && now.Epoch.Epoch != 0 {
		if now.Node == c.Node && now.Incarnation == c.Incarnation {
			return Result{Epoch: now.Epoch.Epoch, NoOp: true}, nil
		}
		r := reject(RejectStaleLeader, "term %d is led by node %s, incarnation %s", c.Term, now.Node, now.Incarnation)
		r.Current = now.Epoch.Epoch
		return Result{}, r
	}
	if c.ExpectedEpoch != now.Epoch.Epoch {
		return Result{}, staleEpoch("the leadership", c.ExpectedEpoch, now.Epoch.Epoch)
	}
	b.Leader = leader{
		Epoch: LeaderEpoch{Term: c.Term, Epoch: b.take()},
		Node:  c.Node, Incarnation: c.Incarnation,
	}
	return Result{Epoch: b.Leader.Epoch.Epoch}, nil
}

// renewGrant gives the same owner a new epoch. A grant of an earlier leadership
// is not renewed: it would look like one of the current leadership and keep the
// role from the new leader, which is about to assign it anew.
func (c BumpEpoch) renewGrant(b *body) (Result, *Rejection) {
	g, rej := b.owned(c.Role, c.ExpectedEpoch, c.Node, c.Incarnation)
	if rej != nil {
		return Result{}, rej
	}
	if g.Epoch < b.Leader.Epoch.Epoch {
		r := reject(RejectStaleLeader, "%s epoch %d was granted before the current leadership", c.Role, g.Epoch)
		r.Current = b.Leader.Epoch.Epoch
		return Result{}, r
	}
	g.Epoch = b.take()
	b.setGrant(g)
	return Result{Epoch: g.Epoch}, nil
}

func (c ReleaseRole) apply(b *body, _ entry) (Result, *Rejection) {
	if c.Leader != (LeaderEpoch{}) {
		if rej := b.expectLeader(c.Leader); rej != nil {
			return Result{}, rej
		}
	}
	g, rej := b.owned(c.Role, c.ExpectedEpoch, c.Node, c.Incarnation)
	if rej != nil {
		return Result{}, rej
	}
	b.vacate(g, c.Code, c.Reason)
	return Result{Epoch: g.Epoch}, nil
}

// owned returns the grant when it has exactly this epoch and owner.
func (b *body) owned(r Role, epoch Epoch, n NodeID, inc IncarnationID) (RoleGrant, *Rejection) {
	g := b.grant(r)
	if g.Epoch != epoch {
		return g, staleEpoch(r.String(), epoch, g.Epoch)
	}
	if !g.HeldBy(n, inc) {
		rej := reject(RejectNotOwner, "%s epoch %d is not owned by node %s, incarnation %s", r, epoch, n, inc)
		rej.Current = g.Epoch
		return g, rej
	}
	return g, nil
}

// vacate ends a grant. Its epoch stays, so that the next expectation is exact.
func (b *body) vacate(g RoleGrant, code, reason string) {
	x := Release{Role: g.Role, Epoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: code, Reason: reason}
	if i, ok := b.release(g.Role); ok {
		b.Releases[i] = x
	} else {
		b.Releases = slices.Insert(b.Releases, i, x)
	}
	b.setGrant(RoleGrant{Role: g.Role, Epoch: g.Epoch})
}

func (b *body) expectLeader(l LeaderEpoch) *Rejection {
	if now := b.Leader.Epoch; l != now || now.Epoch == 0 {
		r := reject(RejectStaleLeader, "the leadership is epoch %d of term %d, not epoch %d of term %d", now.Epoch, now.Term, l.Epoch, l.Term)
		r.Current = now.Epoch
		return r
	}
	return nil
}
