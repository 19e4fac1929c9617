// Rows: one for every member, one for every role, whatever is known of them.

package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func memberRows(in Input) []MemberRow {
	rows := make([]MemberRow, 0, len(in.View.Members))
	for _, m := range in.View.Members {
		rows = append(rows, memberRow(in, m))
	}
	return rows
}

func memberRow(in Input, m fsm.Member) MemberRow {
	row := MemberRow{
		Node: m.Node, Name: in.name(m.Node), Incarnation: m.Incarnation,
		Self: m.Node == in.Self.Node, Leader: m.Node == in.View.KnownLeader,
		Role: m.Role, State: m.State, LagEntries: -1, ContactMS: -1,
		Endpoint: m.Endpoint, Agents: m.Agents, Protocol: m.Protocol, Build: m.Build,
	}
	if r, ok := in.report(m); ok {
		row.PGWritable = &r.PGWritable
	}
	row.contact(in)
	return row
}

// contact judges a member: itself, by the leader's word, or by this node's own
// probes. The leader's word counts only while it is fresh, so that an old one
// cannot show a dead node as healthy.
func (row *MemberRow) contact(in Input) {
	peer, known := in.peer(row.Node)
	switch {
	case row.Self:
		row.ContactMS = 0
		row.lag(in, peer, known)
	case !in.Facts.From.IsZero() && row.Node == in.Facts.From:
		row.ContactMS, row.LagEntries, row.Health = 0, 0, MemberHealthy
	case known && peer.ContactMS >= 0 && peer.ContactMS <= ContactLimit.Milliseconds():
		row.ContactMS = peer.ContactMS
		row.lag(in, peer, true)
	case known && peer.ContactMS >= 0:
		row.ContactMS, row.Health = peer.ContactMS, MemberUnreachable
		row.Reason = fmt.Sprintf("no answer to the leader for %s", span(time.Duration(peer.ContactMS)*time.Millisecond))
		row.probed(in)
	case known:
		row.Health, row.Reason = MemberUnreachable, "never heard of since the leader began to lead"
		row.probed(in)
	default:
		row.byProbe(in)
	}
}

func (row *MemberRow) lag(in Input, p PeerFact, known bool) {
	row.Health = MemberHealthy
	switch {
	case row.Leader && row.Self:
		row.LagEntries = 0
	case known && in.Facts.Applied > 0:
		row.LagEntries = max(0, int64(in.Facts.Applied)-int64(p.MatchIndex))
	}
	if row.LagEntries > LagLimit {
		row.Health, row.Reason = MemberLagging, fmt.Sprintf("alive, but %d entries behind the leader", row.LagEntries)
	}
}

// byProbe judges a member without the leader's word.
func (row *MemberRow) byProbe(in Input) {
	p, ok := in.probe(row.Node)
	if !ok || p.Since.IsZero() {
		row.Health = MemberUnknown
		return
	}
	if !p.LastOK.IsZero() {
		row.ContactMS = in.Now.Sub(p.LastOK).Milliseconds()
	}
	if p.Err == "" {
		row.Health = MemberHealthy
		return
	}
	row.Health = MemberUnreachable
	row.probed(in)
}

// probed adds what this node met when it tried to reach the member itself.
func (row *MemberRow) probed(in Input) {
	p, ok := in.probe(row.Node)
	if !ok || p.Err == "" {
		return
	}
	row.Reason = p.Err
	if p.LastOK.IsZero() {
		row.Reason += ", never reached by this process"
		return
	}
	row.Reason += fmt.Sprintf(", last reached %s ago", span(in.Now.Sub(p.LastOK)))
}

func roleRows(in Input) []RoleRow {
	rows := make([]RoleRow, 0, len(fsm.Roles()))
	for _, r := range fsm.Roles() {
		rows = append(rows, roleRow(in, r))
	}
	return rows
}

func roleRow(in Input, role fsm.Role) RoleRow {
	g := in.View.Role(role)
	row := RoleRow{
		Role: role, Owner: g.Owner, OwnerName: in.name(g.Owner), Incarnation: g.Incarnation, Epoch: g.Epoch,
		Owned: fact(!g.Vacant()), Fenced: No, Active: No, Backoff: []BackoffRow{},
	}
	if x, ok := in.View.Release(role); ok {
		row.LastRelease = &x
	}
	for _, d := range in.Facts.Backoff {
		if d.Role == role {
			row.Backoff = append(row.Backoff, BackoffRow{Node: d.Node, Name: in.name(d.Node), Failures: d.Failures, LeftMS: d.LeftMS})
		}
	}
	if g.Vacant() {
		row.vacant(in)
		return row
	}
	row.owned(in, g)
	return row
}

func (row *RoleRow) vacant(in Input) {
	switch {
	case row.LastRelease != nil && row.LastRelease.Epoch == row.Epoch:
		row.Why = fmt.Sprintf("%s: %s", row.LastRelease.Code, row.LastRelease.Reason)
	case !registered(in, row.Role):
		row.Unregistered = true
		row.Why = "no reachable node registers this role"
	default:
		row.Why = "not assigned yet"
	}
	for _, b := range row.Backoff {
		row.Why += fmt.Sprintf("; %s gets it again in %s at the earliest (failures: %d)", b.Name, span(time.Duration(b.LeftMS)*time.Millisecond), b.Failures)
	}
}

func (row *RoleRow) owned(in Input, g fsm.RoleGrant) {
	m, _ := in.View.Member(g.Owner)
	r, ok := in.report(m)
	if !ok {
		row.Fenced, row.Active = NotKnown, NotKnown
		row.Why = fmt.Sprintf("%s does not report, so what it runs is not known", row.OwnerName)
		return
	}
	at := cluster.GuardNone
	for _, s := range r.Roles {
		if s.Role == g.Role && s.Epoch == g.Epoch {
			at = s.State
		}
	}
	row.Fenced, row.Active = guardReached(at, cluster.GuardFenced), guardReached(at, cluster.GuardActive)
	switch {
	case at == cluster.GuardActive:
		row.Why = "active"
	case g.Epoch < in.View.LeaderEpoch.Epoch:
		row.Why = "granted under an earlier leadership; the leader assigns it anew"
	case !r.PGWritable:
		row.Why = fmt.Sprintf("%s cannot write to PostgreSQL", row.OwnerName)
	case at == cluster.GuardRevoked:
		row.Why = "its epoch is spent; a new one is being taken"
	case at == cluster.GuardFenced:
		row.Why = "reconciling with the database"
	case at == cluster.GuardGranted:
		row.Why = "raising the database fence"
	default:
		row.Why = fmt.Sprintf("%s has not started it yet", row.OwnerName)
	}
}

// registered reports whether some node that reports can run the role.
func registered(in Input, role fsm.Role) bool {
	for _, m := range in.View.Members {
		if r, ok := in.report(m); ok && slices.Contains(r.RunnableRoles, role) {
			return true
		}
	}
	return false
}
