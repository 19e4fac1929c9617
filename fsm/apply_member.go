// Commands about members: admission, promotion, change, removal.

package fsm

import "slices"

// Legal moves of a member's state (§19):
//
//	from     \ to  Active   Draining  Leaving   Removed
//	(none)         Joining by AddLearner, Active by InitCluster
//	Joining        update   -         -         force
//	Active         -        update    -         force
//	Draining       update   -         update    force
//	Leaving        -        -         -         remove
//	Removed        -        -         -         -
//
// update = UpdateMember, remove = RemoveMember, force = RemoveMember{Force}.
// Removed is never stored: the entry goes and its id stays as a tombstone.
func (s MemberState) mayBecome(to MemberState) bool {
	switch s {
	case Joining, Draining:
		return to == Active || s == Draining && to == Leaving
	case Active:
		return to == Draining
	}
	return false
}

func (c AddLearner) apply(b *body, _ entry) (Result, *Rejection) {
	m := c.Member
	if _, gone := b.removed(m.Node); gone {
		return Result{}, reject(RejectRemoved, "node %s was removed and may never return", m.Node)
	}
	i, known := b.member(m.Node)
	if known {
		return Result{}, reject(RejectMember, "node %s is already a member", m.Node)
	}
	if rej := b.expectConfig(c.ExpectedConfig); rej != nil {
		return Result{}, rej
	}
	if len(b.Config.Members) >= MaxMembers {
		return Result{}, reject(RejectBound, "the cluster has its maximum of %d members", MaxMembers)
	}
	if !m.Protocol.supports(b.Feature) {
		return Result{}, reject(RejectUnsupported, "node %s supports feature versions up to %d, but %d is active",
			m.Node, m.Protocol.Max, b.Feature)
	}
	m.State = Joining
	b.Config.Members = slices.Insert(b.Config.Members, i, m)
	b.Config.Version++
	return Result{}, nil
}

func (c PromoteVoter) apply(b *body, _ entry) (Result, *Rejection) {
	i, known := b.member(c.Node)
	if !known {
		return Result{}, reject(RejectMember, "node %s is not a member", c.Node)
	}
	if rej := b.expectConfig(c.ExpectedConfig); rej != nil {
		return Result{}, rej
	}
	m := &b.Config.Members[i]
	if m.Role != Learner || m.State != Active {
		return Result{}, reject(RejectMember, "node %s is %s %s; only an Active Learner is promoted", c.Node, m.State, m.Role)
	}
	m.Role = Voter
	b.Config.Version++
	return Result{}, nil
}

func (c RemoveMember) apply(b *body, _ entry) (Result, *Rejection) {
	i, known := b.member(c.Node)
	if !known {
		return Result{}, reject(RejectMember, "node %s is not a member", c.Node)
	}
	if rej := b.expectConfig(c.ExpectedConfig); rej != nil {
		return Result{}, rej
	}
	if m := b.Config.Members[i]; m.State != Leaving && !c.Force {
		return Result{}, reject(RejectMember, "node %s is %s; drain it first or force its removal", c.Node, m.State)
	}
	if b.onlyVoter(c.Node) {
		return Result{}, reject(RejectMember, "node %s is the only voter", c.Node)
	}
	if len(b.Removed) >= MaxRemoved {
		// A dropped tombstone would let a removed id return, so the bound stops removals instead.
		return Result{}, reject(RejectBound, "the cluster has its maximum of %d removed ids", MaxRemoved)
	}
	b.strip(c.Node, CodeMemberRemoved, "the member was removed")
	b.Config.Members = slices.Delete(b.Config.Members, i, i+1)
	b.Config.Version++
	j, _ := b.removed(c.Node)
	b.Removed = slices.Insert(b.Removed, j, c.Node)
	return Result{}, nil
}

func (c UpdateMember) apply(b *body, _ entry) (Result, *Rejection) {
	i, known := b.member(c.Node)
	if !known {
		return Result{}, reject(RejectMember, "node %s is not a member", c.Node)
	}
	old := b.Config.Members[i]
	if c.ExpectedIncarnation != old.Incarnation {
		return Result{}, reject(RejectIncarnation, "the committed incarnation of node %s is %s, not %s",
			c.Node, old.Incarnation, c.ExpectedIncarnation)
	}
	m := c.over(old)
	if m.State != old.State && !old.State.mayBecome(m.State) {
		return Result{}, reject(RejectMember, "node %s is %s and cannot become %s", c.Node, old.State, m.State)
	}
	if !m.Protocol.supports(b.Feature) {
		return Result{}, reject(RejectUnsupported, "node %s supports feature versions up to %d, but %d is active",
			m.Node, m.Protocol.Max, b.Feature)
	}
	if m == old {
		return Result{NoOp: true}, nil
	}
	if m.Incarnation != old.Incarnation {
		b.strip(c.Node, CodeIncarnationEnded, "the owner's process was replaced by a new one")
	}
	b.Config.Members[i] = m
	b.Config.Version++
	return Result{}, nil
}

// over lays the set fields of the command over a member.
func (c UpdateMember) over(m Member) Member {
	if !c.Incarnation.IsZero() {
		m.Incarnation = c.Incarnation
	}
	if c.Name != "" {
		m.Name = c.Name
	}
	if c.State != 0 {
		m.State = c.State
	}
	if c.Endpoint != "" {
		m.Endpoint = c.Endpoint
	}
	if c.Agents != "" {
		m.Agents = c.Agents
	}
	if c.Protocol != (VersionRange{}) {
		m.Protocol = c.Protocol
	}
	if c.Build != "" {
		m.Build = c.Build
	}
	return m
}

func (b *body) expectConfig(v ConfigVersion) *Rejection {
	if v != b.Config.Version {
		return reject(RejectConfig, "the configuration is at version %d, not %d", b.Config.Version, v)
	}
	return nil
}

func (b *body) onlyVoter(n NodeID) bool {
	return !slices.ContainsFunc(b.Config.Members, func(m Member) bool { return m.Role == Voter && m.Node != n })
}

// process returns the member that this very process is; a process that is not
// the committed incarnation of its node may do nothing (§13).
func (b *body) process(n NodeID, inc IncarnationID) (Member, *Rejection) {
	i, known := b.member(n)
	if !known {
		return Member{}, reject(RejectMember, "node %s is not a member", n)
	}
	m := b.Config.Members[i]
	if m.Incarnation != inc {
		return Member{}, reject(RejectIncarnation, "the committed incarnation of node %s is %s, not %s", n, m.Incarnation, inc)
	}
	return m, nil
}

// strip takes every role from a node (§13). Its exclusive operations stay held
// without anybody's authority: they are abandoned until a successor has inspected
// what they did (§245, §246).
func (b *body) strip(n NodeID, code, reason string) {
	for _, g := range b.Roles {
		if g.Owner == n {
			b.vacate(g, code, reason)
		}
	}
}
