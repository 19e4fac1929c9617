// Quorum: is there a majority, and how many more voters may fail (§139).

package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// tally counts the voters by what this node knows of them.
type tally struct {
	total, healthy, lagging, unreachable, unknown int

	bad []MemberRow // unreachable or lagging voters
}

func count(rows []MemberRow) tally {
	var t tally
	for _, m := range rows {
		if m.Role != fsm.Voter {
			continue
		}
		t.total++
		switch m.Health {
		case MemberHealthy:
			t.healthy++
		case MemberLagging:
			t.lagging++
			t.bad = append(t.bad, m)
		case MemberUnreachable:
			t.unreachable++
			t.bad = append(t.bad, m)
		default:
			t.unknown++
		}
	}
	return t
}

// quorum judges consensus as this node sees it:
//
//	no cluster yet, or this node has no member entry   Unknown
//	view confirmed, every voter healthy                Healthy
//	view confirmed, otherwise                          Degraded
//	not confirmed, for less than two elections         Unknown: one may be running
//	not confirmed, and not a voter                     Unknown: it hears from the leader alone
//	not confirmed, and another leads                   Unknown: there is a quorum, this node is behind
//	not confirmed for longer                           Lost
//
// The reasons say why it is not Healthy.
func quorum(in Input, rows []MemberRow) (QuorumStatus, []string) {
	t := count(rows)
	q := QuorumStatus{VotersTotal: t.total, VotersHealthy: t.healthy, Needed: t.total/2 + 1, HighlyAvailable: t.total >= 3}
	self, member := in.View.Member(in.Self.Node)
	if !member {
		q.Health, q.VotersHealthy, q.CanLose = QuorumUnknown, -1, -1
		if !in.View.Initialised() {
			return q, []string{"this node has not received the committed state yet"}
		}
		return q, []string{"this node is not a member of the cluster"}
	}
	if in.current() {
		return confirmed(q, t)
	}
	q.VotersHealthy, q.CanLose = -1, -1
	since := unconfirmedFor(in)
	switch {
	case since <= 2*in.election():
		q.Health = QuorumUnknown
		return q, []string{fmt.Sprintf("no leader has confirmed this node's view for %s; an election may be running", span(since))}
	case self.Role != fsm.Voter:
		q.Health = QuorumUnknown
		return q, []string{fmt.Sprintf("no leader has confirmed this %s's view for %s", strings.ToLower(self.Role.String()), span(since))}
	}
	if known := in.View.KnownLeader; !known.IsZero() && known != in.Self.Node {
		q.Health = QuorumUnknown
		return q, []string{fmt.Sprintf("%s leads, and this node has not caught up with it for %s", in.name(known), span(since))}
	}
	q.Health, q.CanLose = QuorumLost, 0
	if t.unknown == 0 {
		q.VotersHealthy = t.healthy + t.lagging
	}
	return q, lost(in, t, since)
}

func confirmed(q QuorumStatus, t tally) (QuorumStatus, []string) {
	q.Health = QuorumHealthy
	q.CanLose = max(0, t.healthy-q.Needed)
	var why []string
	for _, m := range t.bad {
		q.Health = QuorumDegraded
		why = append(why, fmt.Sprintf("%s is %s: %s", m.Name, m.Health, m.Reason))
	}
	if t.unknown > 0 {
		// The leader was just confirmed by a majority, so there is one; which
		// voters it is made of is all that is not known.
		q.Health, q.VotersHealthy, q.CanLose = QuorumDegraded, -1, -1
		why = append(why, "the leader did not say how the other voters are")
	}
	return q, why
}

// lost says why there is no quorum, naming the voters that are missing.
func lost(in Input, t tally, since time.Duration) []string {
	var why []string
	if len(t.bad) > 0 && t.unreachable >= t.total-t.total/2 {
		why = append(why, fmt.Sprintf("no majority: %s unreachable since %s", names(t.bad), earliest(in, t.bad)))
	} else {
		why = append(why, fmt.Sprintf("no leader for %s, %d of %d voters known to be reachable", span(since), t.healthy+t.lagging, t.total))
	}
	for _, m := range t.bad {
		why = append(why, fmt.Sprintf("%s is %s: %s", m.Name, m.Health, m.Reason))
	}
	return why
}

func names(rows []MemberRow) string {
	var out []string
	for _, m := range rows {
		out = append(out, m.Name)
	}
	return strings.Join(out, ", ")
}

// earliest is the moment from which all named members were unreachable to this node.
func earliest(in Input, rows []MemberRow) string {
	at := in.Now
	for _, m := range rows {
		if p, ok := in.probe(m.Node); ok && !p.Since.IsZero() && p.Since.Before(at) {
			at = p.Since
		}
	}
	return at.UTC().Format("15:04:05Z")
}

// unconfirmedFor is how long this node has been without a confirmed leader.
func unconfirmedFor(in Input) time.Duration {
	if age, ok := in.age(); ok {
		return max(0, age-cluster.ConfirmationBound)
	}
	if in.LeaderSince.IsZero() {
		return 0
	}
	return in.Now.Sub(in.LeaderSince)
}

func (in Input) election() time.Duration {
	if in.Election > 0 {
		return in.Election
	}
	return DefaultElection
}
