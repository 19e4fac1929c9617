// Package health says how the cluster is (§138–§141): one status model for the
// HTTP API and the command line, built by a pure function from what one node knows.
package health

import (
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// QuorumHealth is the state of consensus as this node sees it (§139).
type QuorumHealth string

// The four values.
const (
	QuorumHealthy  QuorumHealth = "Healthy"  // a leader is known and every voter is in contact and caught up
	QuorumDegraded QuorumHealth = "Degraded" // a majority is in contact, at least one voter is missing or lags
	QuorumLost     QuorumHealth = "Lost"     // no majority is in contact, or no leader for too long
	QuorumUnknown  QuorumHealth = "Unknown"  // this node cannot tell
)

// Headline is the one-word verdict.
type Headline string

// The four headlines.
const (
	Healthy  Headline = "HEALTHY"
	Degraded Headline = "DEGRADED"
	NoQuorum Headline = "NO QUORUM"
	Unknown  Headline = "UNKNOWN"
)

// MemberHealth is what this node knows of a member's process (§141).
type MemberHealth string

// The values of MemberHealth.
const (
	MemberHealthy     MemberHealth = "healthy"
	MemberLagging     MemberHealth = "lagging"     // alive, but its log is behind by more than LagLimit
	MemberUnreachable MemberHealth = "unreachable" // no contact within ContactLimit
	MemberUnknown     MemberHealth = "unknown"     // this node cannot tell
)

// Read says what a status rests on (§309).
type Read string

// The kinds of read.
const (
	ReadQuorum Read = "quorum" // the view was confirmed by a majority within ConfirmationBound
	ReadLocal  Read = "local"  // the cached view of this node; it may be behind
)

// Provenance says who saw this, when, and how current it was.
type Provenance struct {
	ObservedBy   fsm.NodeID `json:"observed_by"`
	ObservedName string     `json:"observed_by_name"`
	As           string     `json:"observed_as"` // leader, follower, or none when no leader is known
	ObservedAt   time.Time  `json:"observed_at"`
	// FreshnessMS is how long ago the view was last confirmed; -1 when it never was.
	FreshnessMS int64 `json:"freshness_ms"`
	Read        Read  `json:"read"`
}

// Header opens every document of this package.
type Header struct {
	APIVersion string `json:"apiVersion"` // forgeyard.dev/v1
	Kind       string `json:"kind"`
	Provenance
}

// ClusterStatus is GET /v1/cluster/status. Durations end in _ms; -1 means unknown.
type ClusterStatus struct {
	Header
	Headline Headline     `json:"headline"`
	Reasons  []string     `json:"reasons"` // why the headline is not HEALTHY; most important first
	Notes    []string     `json:"notes"`   // what is worth knowing and changes no headline
	Hint     string       `json:"hint,omitempty"`
	Quorum   QuorumStatus `json:"quorum"`
	Leader   LeaderStatus `json:"leader"`

	ClusterID    fsm.ClusterID  `json:"cluster_id"`
	ClusterName  string         `json:"cluster_name"`
	Generation   fsm.Generation `json:"generation"`
	Term         uint64         `json:"term"`
	AppliedIndex uint64         `json:"applied_index"`
	Epoch        fsm.Epoch      `json:"epoch"`

	PostgreSQL  PostgresStatus    `json:"postgresql"`
	Roles       RoleCounts        `json:"roles"`
	Maintenance MaintenanceStatus `json:"maintenance"`
	Members     []MemberRow       `json:"members"`
	RoleRows    []RoleRow         `json:"role_rows"`
}

// QuorumStatus puts configured and healthy voters, quorum and tolerance side by side.
type QuorumStatus struct {
	Health          QuorumHealth `json:"health"`
	VotersHealthy   int          `json:"voters_healthy"` // -1 when this node cannot tell
	VotersTotal     int          `json:"voters_configured"`
	Needed          int          `json:"needed"`   // a majority of the configured voters
	CanLose         int          `json:"can_lose"` // healthy voters that may still fail; -1 when unknown
	HighlyAvailable bool         `json:"ha"`       // survives the loss of any one voter by design
}

// LeaderStatus is the known Raft leader; Node is zero when none is known.
type LeaderStatus struct {
	Node    fsm.NodeID      `json:"node"`
	Name    string          `json:"name"`
	SinceMS int64           `json:"since_ms"`
	Epoch   fsm.LeaderEpoch `json:"leader_epoch"`
}

// PostgresStatus is how many processes can write to PostgreSQL.
type PostgresStatus struct {
	Writable []string `json:"writable"` // names of members, sorted
	Missing  []string `json:"missing"`  // members that reported they cannot
}

// RoleCounts counts roles that some process runs.
type RoleCounts struct {
	Active   int `json:"active"`
	Runnable int `json:"runnable"` // roles that some node registers, owns or owned
}

// MaintenanceStatus is the committed maintenance state (§129).
type MaintenanceStatus struct {
	State fsm.Maintenance `json:"state"`
	Epoch fsm.Epoch       `json:"epoch"`
}

// MemberRow is one member. Every member has a row, reachable or not.
type MemberRow struct {
	Node        fsm.NodeID        `json:"node"`
	Name        string            `json:"name"`
	Incarnation fsm.IncarnationID `json:"incarnation"`
	Self        bool              `json:"self"`
	Leader      bool              `json:"leader"`
	Role        fsm.MemberRole    `json:"role"`
	State       fsm.MemberState   `json:"state"`
	Health      MemberHealth      `json:"health"`
	Reason      string            `json:"reason,omitempty"` // why it is not healthy
	LagEntries  int64             `json:"lag_entries"`      // -1 unknown
	ContactMS   int64             `json:"last_contact_ms"`  // -1 never or unknown
	PGWritable  *bool             `json:"pg_writable"`      // null unknown
	Endpoint    fsm.Endpoint      `json:"endpoint"`
	Agents      fsm.Endpoint      `json:"agent_endpoint"`
	Protocol    fsm.VersionRange  `json:"protocol"`
	Build       string            `json:"build"`
}

// Fact is yes, no or unknown.
type Fact string

// The three values of Fact.
const (
	Yes      Fact = "yes"
	No       Fact = "no"
	NotKnown Fact = "unknown"
)

// RoleRow is one role: owned, fenced and active are three facts, not one state.
type RoleRow struct {
	Role        fsm.Role          `json:"role"`
	Owner       fsm.NodeID        `json:"owner"` // zero when vacant
	OwnerName   string            `json:"owner_name"`
	Incarnation fsm.IncarnationID `json:"incarnation"`
	Epoch       fsm.Epoch         `json:"epoch"`
	Owned       Fact              `json:"owned"`  // the committed view names an owner
	Fenced      Fact              `json:"fenced"` // the owner raised the database fence to this epoch
	Active      Fact              `json:"active"` // the owner's loops run
	Why         string            `json:"why"`
	LastRelease *fsm.Release      `json:"last_release"`
	Backoff     []BackoffRow      `json:"backoff"`
	// Unregistered: no node that reports can run it, and it was never granted.
	Unregistered bool `json:"unregistered"`
}

// BackoffRow is a node that does not get the role for a while.
type BackoffRow struct {
	Node     fsm.NodeID `json:"node"`
	Name     string     `json:"name"`
	Failures int        `json:"failures"`
	LeftMS   int64      `json:"left_ms"`
}

// MemberList is GET /v1/cluster/members.
type MemberList struct {
	Header
	Headline Headline    `json:"headline"`
	Reasons  []string    `json:"reasons"`
	Members  []MemberRow `json:"members"`
}

// RoleList is GET /v1/cluster/roles; roles that are not active come first.
type RoleList struct {
	Header
	Headline Headline  `json:"headline"`
	Reasons  []string  `json:"reasons"`
	Roles    []RoleRow `json:"roles"`
}
