// Input: what one node knows, gathered before anything is concluded.

package health

import (
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of the verdicts.
const (
	// ContactLimit is how long a member may be silent before it counts as unreachable.
	ContactLimit = 2 * time.Second
	// LagLimit is how many log entries a member may be behind before it counts as lagging.
	LagLimit = 256
	// DefaultElection is the election timeout that a Config without one is judged by.
	DefaultElection = 500 * time.Millisecond
)

// Input is everything a status depends on.
type Input struct {
	Self     cluster.Identity
	View     cluster.View
	Own      cluster.HealthReport // this process now
	Facts    Facts                // what the leader knows; From is zero when no leader answered
	Probes   []Probe              // this node's own attempts to reach others
	Election time.Duration        // election timeout
	// LeaderSince is when this node last saw the known leader change, to one or
	// to none; zero when it has not looked yet.
	LeaderSince time.Time
	Now         time.Time
}

// Facts are what only the leader knows, in a form that travels: ages, not times.
type Facts struct {
	From    fsm.NodeID    `json:"from"`    // the leader that says so
	Applied uint64        `json:"applied"` // its applied index
	Reports []ReportFact  `json:"reports"`
	Peers   []PeerFact    `json:"peers"`
	Backoff []BackoffFact `json:"backoff"`
}

// ReportFact is a node's newest health report and how old it is.
type ReportFact struct {
	cluster.HealthReport
	AgeMS int64 `json:"age_ms"`
}

// PeerFact is how far a member's log is and when it last answered.
type PeerFact struct {
	Node       fsm.NodeID `json:"node"`
	MatchIndex uint64     `json:"match_index"`
	ContactMS  int64      `json:"contact_ms"` // -1 never
}

// BackoffFact is a node that does not get a role for a while.
type BackoffFact struct {
	Role     fsm.Role   `json:"role"`
	Node     fsm.NodeID `json:"node"`
	Failures int        `json:"failures"`
	LeftMS   int64      `json:"left_ms"`
}

// Probe is the newest result of this node's own attempts to reach a member.
type Probe struct {
	Node   fsm.NodeID
	LastOK time.Time // monotonic; zero when never
	Since  time.Time // since when the result has been what it is
	Err    string    // why the last attempt failed; empty when it succeeded
}

// report returns the fresh report of a member's committed process.
func (in Input) report(m fsm.Member) (cluster.HealthReport, bool) {
	if m.Node == in.Self.Node {
		return in.Own, m.Incarnation == in.Self.Incarnation
	}
	for _, r := range in.Facts.Reports {
		if r.Node == m.Node && r.Incarnation == m.Incarnation && r.AgeMS <= ContactLimit.Milliseconds() {
			return r.HealthReport, true
		}
	}
	return cluster.HealthReport{}, false
}

func (in Input) peer(n fsm.NodeID) (PeerFact, bool) {
	for _, p := range in.Facts.Peers {
		if p.Node == n {
			return p, true
		}
	}
	return PeerFact{}, false
}

func (in Input) probe(n fsm.NodeID) (Probe, bool) {
	for _, p := range in.Probes {
		if p.Node == n {
			return p, true
		}
	}
	return Probe{}, false
}

// name is a member's label, or its id when it has none.
func (in Input) name(n fsm.NodeID) string {
	if n.IsZero() {
		return ""
	}
	if m, ok := in.View.Member(n); ok && m.Name != "" {
		return m.Name
	}
	return n.String()
}

// age is how long ago the view was confirmed; false when it never was.
func (in Input) age() (time.Duration, bool) {
	if in.View.Confirmed.IsZero() {
		return 0, false
	}
	return max(0, in.Now.Sub(in.View.Confirmed)), true
}

// current reports whether a majority confirmed this view just now.
func (in Input) current() bool {
	age, ok := in.age()
	return ok && age <= cluster.ConfirmationBound && !in.View.KnownLeader.IsZero()
}
