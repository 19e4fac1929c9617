// Package early lets a voter campaign before its timers end, when its leader's process is gone for certain.
//
// A killed process's port refuses datagrams at once, but one wrong refusal
// would depose a healthy leader: a filter that appears, a port in restart. So
// nothing here decides alone.
//
// This file: the rule, pure.
package early

import (
	"bytes"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// The bounds of the rule.
const (
	// Silence is the age of the last append from which on a voter doubts its
	// leader. Heartbeats leave at least every fifth of the heartbeat timeout.
	Silence = 120 * time.Millisecond
	// EchoAge is how old the echo may be without which a refusal proves nothing:
	// only what has answered here can have gone away.
	EchoAge = 2 * time.Second
	// Rest is how long after a campaign, whatever its term, there is no other.
	Rest = 10 * time.Second
	// fresh is how old a refusal may be when it is judged, if nothing has come of
	// that leader since: a kernel refuses one host six datagrams at a stroke and
	// then one a second, and what QUIC still sends to the port counts too.
	fresh = time.Second
)

// Standing is what a node's engine knows of its own part at one moment.
type Standing struct {
	Follows     bool // it neither leads nor campaigns, and could lead
	Term        uint64
	Leader      fsm.NodeID        // whom it follows; zero when nobody
	Incarnation fsm.IncarnationID // the leader's process, by the committed view
	Voters      []fsm.NodeID
	Appended    time.Time // when the newest append of the leader came; zero when none did
	Position    Position  // the end of its log
}

// Position is the end of a log.
type Position struct {
	Term  uint64 `cbor:"1,keyasint"`
	Index uint64 `cbor:"2,keyasint"`
}

// better reports whether the holder of p should campaign rather than that of q.
func (p Position) better(q Position, node, other fsm.NodeID) bool {
	switch {
	case p.Term != q.Term:
		return p.Term > q.Term
	case p.Index != q.Index:
		return p.Index > q.Index
	}
	return bytes.Compare(node[:], other[:]) < 0
}

// Sight is what one socket has seen of the leader's port.
type Sight struct {
	Echoed  time.Time         // when the newest answered question was sent
	EchoOf  fsm.IncarnationID // whose answer it was
	Refused time.Time         // when the newest refused question was sent, unless one was answered since
}

// Case is whose end is in question.
type Case struct {
	Term        uint64            `cbor:"1,keyasint"`
	Leader      fsm.NodeID        `cbor:"2,keyasint"`
	Incarnation fsm.IncarnationID `cbor:"3,keyasint"`
}

func (s Standing) about() Case {
	return Case{Term: s.Term, Leader: s.Leader, Incarnation: s.Incarnation}
}

// Testimony is what a voter says of its leader, and of its own log.
type Testimony struct {
	Case     Case     `cbor:"1,keyasint"`
	Gone     bool     `cbor:"2,keyasint"` // it sees the refusal too, and no append since
	Position Position `cbor:"3,keyasint"`
}

// Finding says how the rule judges.
type Finding string

// The findings of the rule, in the order in which it looks.
const (
	NotFollowing Finding = "this node follows no leader"
	NoVote       Finding = "this node has no vote"
	Appending    Finding = "the leader appends"
	NoEcho       Finding = "this process of the leader has not echoed here in the last seconds"
	NotRefused   Finding = "the leader's port does not refuse"
	Resting      Finding = "there was an early election a moment ago"
	Gone         Finding = "the leader is gone" // of one voter's sight alone
	Minority     Finding = "no majority sees it"
	Behind       Finding = "another voter is to campaign"
	Campaign     Finding = "a majority sees it"
)

// sees judges what this node sees by itself.
func sees(self fsm.NodeID, s Standing, eye Sight, rest Rested, now time.Time) Finding {
	switch {
	case !s.Follows || s.Leader.IsZero() || s.Leader == self:
		return NotFollowing
	case !slices.Contains(s.Voters, self):
		return NoVote
	case s.Appended.IsZero() || now.Sub(s.Appended) <= Silence:
		return Appending
	case eye.Refused.IsZero() || eye.Refused.Sub(s.Appended) <= Silence || now.Sub(eye.Refused) > fresh || eye.Echoed.After(eye.Refused):
		return NotRefused
	case eye.EchoOf != s.Incarnation || s.Incarnation.IsZero() || eye.Refused.Sub(eye.Echoed) > EchoAge:
		return NoEcho
	case rest.forbids(s.about(), now):
		return Resting
	}
	return Gone
}

// decide judges what the voters say together. said holds only what others
// answered to a question that this node asked just now.
func decide(self fsm.NodeID, s Standing, eye Sight, said map[fsm.NodeID]Testimony, rest Rested, now time.Time) Finding {
	if own := sees(self, s, eye, rest, now); own != Gone {
		return own
	}
	if rest.campaigned(now) {
		return Resting
	}
	agree, first := 1, true
	for _, v := range s.Voters {
		t, ok := said[v]
		if v == self || v == s.Leader || !ok || !t.Gone || t.Case != s.about() {
			continue
		}
		agree++
		first = first && s.Position.better(t.Position, self, v)
	}
	switch {
	case agree < len(s.Voters)/2+1:
		return Minority
	case !first:
		return Behind
	}
	return Campaign
}

// Rested remembers the last early election that this node had a part in.
type Rested struct {
	Campaigned time.Time // when this node campaigned
	Testified  time.Time // when it first said of Case that its leader is gone
	Case       Case
}

func (r Rested) campaigned(now time.Time) bool {
	return !r.Campaigned.IsZero() && now.Sub(r.Campaigned) < Rest
}

// forbids reports whether a case comes too soon after another one. A case that
// this node has spoken of may go on: the others may not have seen it yet.
func (r Rested) forbids(c Case, now time.Time) bool {
	return c != r.Case && (r.campaigned(now) || !r.Testified.IsZero() && now.Sub(r.Testified) < Rest)
}
