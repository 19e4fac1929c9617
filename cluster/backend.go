// The contract between the coordination service and its two engines (§160): a backend publishes views and proposes, no more.

package cluster

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Identity says which process of which node of which cluster this is.
type Identity struct {
	Cluster     fsm.ClusterID
	Node        fsm.NodeID
	Incarnation fsm.IncarnationID
	Name        string // label only
}

// View is the committed view with a freshness marker (§309). It is an immutable copy.
type View struct {
	fsm.View
	// Confirmed is the send time of the newest exchange that proves this view
	// was current then (monotonic); zero when never.
	Confirmed time.Time
	// KnownLeader is the Raft leader this node follows or is; zero when none is known.
	KnownLeader fsm.NodeID
	// RaftTerm is the current Raft term, beside and never in place of the epoch.
	RaftTerm uint64
}

// Age is how long ago the view was last proved current; the longest duration when it never was.
func (v View) Age(now time.Time) time.Duration { return now.Sub(v.Confirmed) }

// Stale reports whether the view may be out of date (§309).
func (v View) Stale(now time.Time) bool { return v.Age(now) > ConfirmationBound }

// Commit tells what a proposal produced (§160).
type Commit struct {
	fsm.Result
	Index uint64
	Term  uint64
}

// Leadership says that this node leads term Term and has applied everything
// committed before it (a barrier of the term has passed).
type Leadership struct {
	Term uint64
}

// RoleStatus is one line of a health report: where the role's tree on this node stands.
type RoleStatus struct {
	Role  fsm.Role   `json:"role"`
	Epoch fsm.Epoch  `json:"epoch"`
	State GuardState `json:"state"`
}

// HealthReport is what a node tells the leader with every control ping.
type HealthReport struct {
	Node        fsm.NodeID        `json:"node"`
	Incarnation fsm.IncarnationID `json:"incarnation"`
	// PGWritable says whether this node could write to PostgreSQL at its last probe,
	// and PGWritableFor for how long that has held without a break.
	PGWritable    bool          `json:"pg_writable"`
	PGWritableFor time.Duration `json:"pg_writable_for"`
	RunnableRoles []fsm.Role    `json:"runnable_roles"`
	AppliedIndex  uint64        `json:"applied_index"`
	Roles         []RoleStatus  `json:"roles"`
}

// NodeReport is a health report and when the leader received it (monotonic).
type NodeReport struct {
	HealthReport
	Received time.Time
}

// Peer is what the leader knows of another member's replication.
type Peer struct {
	Node        fsm.NodeID
	MatchIndex  uint64
	LastContact time.Time // monotonic; zero when never
}

// Backend is a coordination engine: cluster/local or cluster/raftnode (§160).
// All methods are safe for concurrent use. None but Propose and
// LinearizableView blocks on I/O; those two are bounded by ctx and, without a
// deadline, by DefaultRequestTimeout.
type Backend interface {
	Self() Identity
	// View returns the cached committed view; it never waits for consensus.
	View() View
	// Changes returns a channel that receives a value after views changed; it
	// coalesces and may be lost, so callers also reload on a timer (§292).
	// stop releases it.
	Changes() (hint <-chan struct{}, stop func())
	// LinearizableView proves leadership first; NotLeader or NoQuorum when unprovable (§308).
	LinearizableView(ctx context.Context) (View, error)
	// Propose commits a proposal, through the leader when this node follows.
	// Retrying with the same request id is harmless.
	Propose(ctx context.Context, p fsm.Proposal) (Commit, error)
	// Confirmed is the send time of the newest exchange that proves this node's
	// view current (monotonic); zero when never or when storage failed.
	Confirmed() time.Time
	// Leadership reports whether this node leads, after its barrier; false also
	// when it stopped applying.
	Leadership() (Leadership, bool)
	// Reports returns the newest health report of each node, this one included (leader only).
	Reports() []NodeReport
	// Peers returns replication progress by member (leader only).
	Peers() []Peer
	// SetReporter sets the source of this node's health reports; call it once, before use.
	SetReporter(func() HealthReport)
	// StepDown hands leadership to another voter where there is one.
	StepDown(ctx context.Context, reason string) error
	// Close stops the engine and returns after its goroutines ended.
	Close() error
}

// Bounds of the coordination service.
const (
	// DefaultRequestTimeout bounds Propose and LinearizableView (§184).
	DefaultRequestTimeout = 5 * time.Second
	// ConfirmationBound is how old the last confirmation of the view may be
	// before every guard of this node refuses.
	ConfirmationBound = 500 * time.Millisecond
	// PingInterval is how often a follower that owns a role confirms its view with
	// the leader; one that owns nothing does at half the ConfirmationBound.
	PingInterval = 100 * time.Millisecond
	// OwnerSilence is how long the leader waits for a role owner's ping before it vacates its roles.
	OwnerSilence = time.Second
	// InactiveBound is how long a granted role may stay short of Active before the leader vacates it.
	InactiveBound = 15 * time.Second
)
