// Build: from what one node knows to one status. Pure; it never waits and never asks.

package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// APIVersion and the kinds of the documents of this package.
const (
	APIVersion   = "forgeyard.dev/v1"
	KindStatus   = "ClusterStatus"
	KindMembers  = "MemberList"
	KindRoleList = "RoleList"
)

// Build concludes a status. It answers from the cached view when there is no
// quorum, and says so (§309).
func Build(in Input) ClusterStatus {
	v := in.View
	s := ClusterStatus{
		Header: Header{APIVersion: APIVersion, Kind: KindStatus, Provenance: provenance(in)},
		Leader: leaderStatus(in), ClusterID: v.ClusterID, ClusterName: v.ClusterName, Generation: v.Generation,
		Term: max(v.RaftTerm, v.Term), AppliedIndex: v.Index, Epoch: v.Epoch,
		Maintenance: maintenance(v),
		Members:     memberRows(in),
		RoleRows:    roleRows(in),
	}
	s.PostgreSQL = postgres(s.Members)
	s.Roles = countRoles(s.RoleRows)
	var why []string
	s.Quorum, why = quorum(in, s.Members)
	s.conclude(in, why)
	return s
}

// MemberList is the part of a status that `cluster members` shows.
func (s ClusterStatus) MemberList() MemberList {
	h := s.Header
	h.Kind = KindMembers
	return MemberList{Header: h, Headline: s.Headline, Reasons: s.Reasons, Members: s.Members}
}

// RoleList is the part of a status that `cluster roles` shows: roles that do not work come first.
func (s ClusterStatus) RoleList() RoleList {
	h := s.Header
	h.Kind = KindRoleList
	rows := slices.Clone(s.RoleRows)
	slices.SortStableFunc(rows, func(a, b RoleRow) int { return cmp.Compare(rank(a), rank(b)) })
	return RoleList{Header: h, Headline: s.Headline, Reasons: s.Reasons, Roles: rows}
}

func rank(r RoleRow) int {
	switch {
	case r.Owned == No && !r.Unregistered:
		return 0
	case r.Active != Yes && !r.Unregistered:
		return 1
	case r.Active == Yes:
		return 2
	}
	return 3
}

func provenance(in Input) Provenance {
	p := Provenance{
		ObservedBy: in.Self.Node, ObservedName: cmp.Or(in.Self.Name, in.name(in.Self.Node)),
		ObservedAt: in.Now.UTC().Round(0), FreshnessMS: -1, Read: ReadLocal, As: "none",
	}
	switch in.View.KnownLeader {
	case fsm.NodeID{}:
	case in.Self.Node:
		p.As = "leader"
	default:
		p.As = "follower"
	}
	if age, ok := in.age(); ok {
		p.FreshnessMS = age.Milliseconds()
	}
	if in.current() {
		p.Read = ReadQuorum
	}
	return p
}

func leaderStatus(in Input) LeaderStatus {
	n := in.View.KnownLeader
	l := LeaderStatus{Node: n, Name: in.name(n), SinceMS: -1, Epoch: in.View.LeaderEpoch}
	if !n.IsZero() && !in.LeaderSince.IsZero() {
		l.SinceMS = in.Now.Sub(in.LeaderSince).Milliseconds()
	}
	return l
}

func postgres(rows []MemberRow) PostgresStatus {
	p := PostgresStatus{Writable: []string{}, Missing: []string{}}
	for _, m := range rows {
		switch {
		case m.PGWritable == nil:
		case *m.PGWritable:
			p.Writable = append(p.Writable, m.Name)
		default:
			p.Missing = append(p.Missing, m.Name)
		}
	}
	slices.Sort(p.Writable)
	slices.Sort(p.Missing)
	return p
}

func countRoles(rows []RoleRow) RoleCounts {
	var c RoleCounts
	for _, r := range rows {
		if r.Unregistered {
			continue
		}
		c.Runnable++
		if r.Active == Yes {
			c.Active++
		}
	}
	return c
}

// conclude sets the headline and the reasons, the most important one first.
func (s *ClusterStatus) conclude(in Input, quorumWhy []string) {
	s.Reasons, s.Notes = append([]string{}, quorumWhy...), []string{}
	switch s.Quorum.Health {
	case QuorumLost:
		s.Headline = NoQuorum
		s.Hint = "bring voters back; running jobs go on meanwhile"
	case QuorumUnknown:
		s.Headline = Unknown
		s.Hint = "wait a few seconds and ask again, or ask another node"
	default:
		s.Reasons = append(s.Reasons, s.shortcomings()...)
		s.Headline = Healthy
		if len(s.Reasons) > 0 {
			s.Headline = Degraded
		}
	}
	if s.Quorum.Health == QuorumDegraded {
		s.Hint = "look at the unreachable or lagging voters first; writes continue"
	}
	switch n := s.Quorum.VotersTotal; {
	case n == 1:
		s.Notes = append(s.Notes, "one voter: no high availability")
	case n == 2:
		s.Notes = append(s.Notes, "two voters: losing either one stops writes; this is no high availability")
	case n > 2 && n%2 == 0:
		s.Notes = append(s.Notes, fmt.Sprintf("%d voters tolerate no more failures than %d", n, n-1))
	}
	if m := s.Maintenance.State; m.Valid() && m != fsm.Normal {
		s.Notes = append(s.Notes, "maintenance: "+m.String())
	}
	if in.View.Initialised() && s.Read == ReadLocal {
		s.Notes = append(s.Notes, "this is the last view this node knows; it may be behind")
	}
}

// shortcomings are what is wrong although there is a quorum.
func (s *ClusterStatus) shortcomings() []string {
	var out []string
	for _, r := range s.RoleRows {
		if !r.Unregistered && r.Active != Yes {
			out = append(out, fmt.Sprintf("%s is not known to be active: %s", r.Role, r.Why))
		}
	}
	for _, m := range s.Members {
		if m.Role != fsm.Voter && (m.Health == MemberUnreachable || m.Health == MemberLagging) {
			out = append(out, fmt.Sprintf("%s is %s: %s", m.Name, m.Health, m.Reason))
		}
	}
	for _, n := range s.PostgreSQL.Missing {
		out = append(out, n+" cannot write to PostgreSQL")
	}
	return out
}

// span prints a duration for people: two significant units are enough.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func fact(ok bool) Fact {
	if ok {
		return Yes
	}
	return No
}

func guardReached(s, least cluster.GuardState) Fact {
	return fact(s >= least && s != cluster.GuardRevoked)
}

// maintenance is Normal until a view has arrived: nobody can have set another.
func maintenance(v cluster.View) MaintenanceStatus {
	m := MaintenanceStatus{State: v.Maintenance, Epoch: v.MaintenanceEpoch}
	if !m.State.Valid() {
		m.State = fsm.Normal
	}
	return m
}
