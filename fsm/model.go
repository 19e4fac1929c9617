// The coordination model: epochs, members, role grants and the committed view.

package fsm

import "slices"

// Epoch is the coordination epoch (§23): one counter in the state machine from
// which every role grant, exclusive operation and leader change takes the next
// value. 0 means "none". A role's epochs rise strictly but have gaps.
type Epoch uint64

// Generation rises only in disaster recovery and is compared before the epoch.
type Generation uint64

// SchedulerEpoch is the epoch of a SchedulerLeader grant (§26); only
// RoleGrant.SchedulerEpoch makes one.
type SchedulerEpoch uint64

// ConfigVersion rises by one on every accepted membership change (§21).
type ConfigVersion uint64

// FeatureVersion is the activated cluster feature level (§154); it only rises.
type FeatureVersion uint32

// LeaderEpoch identifies one coordination leadership (§24).
type LeaderEpoch struct {
	Term  uint64 `json:"term" cbor:"1,keyasint"`
	Epoch Epoch  `json:"epoch" cbor:"2,keyasint"`
}

// Endpoint is a validated host:port of at most MaxEndpoint bytes (§14).
type Endpoint string

// VersionRange is the span of protocol versions a build speaks (§153).
type VersionRange struct {
	Min uint32 `json:"min" cbor:"1,keyasint"`
	Max uint32 `json:"max" cbor:"2,keyasint"`
}

// Member is one node of the fleet (§14).
type Member struct {
	Node        NodeID        `json:"node" cbor:"1,keyasint"`
	Incarnation IncarnationID `json:"incarnation" cbor:"2,keyasint"`
	Name        string        `json:"name" cbor:"3,keyasint"` // a label only; at most MaxName bytes
	Role        MemberRole    `json:"role" cbor:"4,keyasint"`
	State       MemberState   `json:"state" cbor:"5,keyasint"`
	Endpoint    Endpoint      `json:"endpoint" cbor:"6,keyasint"`       // cluster UDP address
	Agents      Endpoint      `json:"agent_endpoint" cbor:"7,keyasint"` // agents' UDP address, may be empty
	Protocol    VersionRange  `json:"protocol" cbor:"8,keyasint"`
	Build       string        `json:"build" cbor:"9,keyasint"` // at most MaxBuild bytes
}

// RoleGrant is the current assignment of one role (§43). A vacant role has a
// zero Owner and keeps the Epoch of its last grant, so expectations stay exact.
type RoleGrant struct {
	Role        Role          `json:"role" cbor:"1,keyasint"`
	Epoch       Epoch         `json:"epoch" cbor:"2,keyasint"`
	Owner       NodeID        `json:"owner" cbor:"3,keyasint"`
	Incarnation IncarnationID `json:"incarnation" cbor:"4,keyasint"`
}

// Vacant reports whether no process owns the role.
func (g RoleGrant) Vacant() bool { return g.Owner.IsZero() }

// HeldBy reports whether exactly this process owns the role.
func (g RoleGrant) HeldBy(n NodeID, inc IncarnationID) bool {
	return !n.IsZero() && g.Owner == n && g.Incarnation == inc
}

// SchedulerEpoch returns the scheduler epoch; false unless this is a grant of SchedulerLeader.
func (g RoleGrant) SchedulerEpoch() (SchedulerEpoch, bool) {
	return SchedulerEpoch(g.Epoch), g.Role == SchedulerLeader && !g.Vacant()
}

// Release tells why a role was last given up or vacated. At most one is kept per role.
type Release struct {
	Role        Role          `json:"role" cbor:"1,keyasint"`
	Epoch       Epoch         `json:"epoch" cbor:"2,keyasint"` // the epoch that ended
	Node        NodeID        `json:"node" cbor:"3,keyasint"`
	Incarnation IncarnationID `json:"incarnation" cbor:"4,keyasint"`
	Code        string        `json:"code" cbor:"5,keyasint"`   // FY-…, at most MaxCode bytes
	Reason      string        `json:"reason" cbor:"6,keyasint"` // one sentence, at most MaxReason bytes
}

// ExclusiveLease is a held exclusive operation (§31); it has no time-to-live.
type ExclusiveLease struct {
	Scope       Scope         `json:"scope" cbor:"1,keyasint"`
	Owner       NodeID        `json:"owner" cbor:"2,keyasint"`
	Incarnation IncarnationID `json:"incarnation" cbor:"3,keyasint"`
	Epoch       Epoch         `json:"epoch" cbor:"4,keyasint"`
}

// View is an immutable copy of the committed state at one index (§160). Slices
// are sorted (members by node, roles and scopes by number) and must not be changed.
type View struct {
	ClusterID        ClusterID        `json:"cluster_id"`
	ClusterName      string           `json:"cluster_name"`
	Generation       Generation       `json:"generation"`
	Term             uint64           `json:"term"`  // Raft term of the entry at Index
	Index            uint64           `json:"index"` // applied index of this view
	LeaderEpoch      LeaderEpoch      `json:"leader_epoch"`
	Leader           NodeID           `json:"leader"` // the node that committed LeaderEpoch
	LeaderInc        IncarnationID    `json:"leader_incarnation"`
	Epoch            Epoch            `json:"epoch"` // the counter: highest epoch ever handed out
	Config           ConfigVersion    `json:"config_version"`
	Members          []Member         `json:"members"`
	Roles            []RoleGrant      `json:"roles"`    // one entry for every role ever granted
	Releases         []Release        `json:"releases"` // last release of each role
	Exclusive        []ExclusiveLease `json:"exclusive"`
	Maintenance      Maintenance      `json:"maintenance"`
	MaintenanceEpoch Epoch            `json:"maintenance_epoch"`
	Feature          FeatureVersion   `json:"feature_version"`
	RemovedIDs       []NodeID         `json:"removed_ids"`
}

// Initialised reports whether InitCluster has been applied.
func (v View) Initialised() bool { return !v.ClusterID.IsZero() }

// Role returns the grant of a role; the zero grant (vacant, epoch 0) when it was never granted.
func (v View) Role(r Role) RoleGrant {
	for _, g := range v.Roles {
		if g.Role == r {
			return g
		}
	}
	return RoleGrant{Role: r}
}

// Release returns the last release of a role.
func (v View) Release(r Role) (Release, bool) {
	for _, x := range v.Releases {
		if x.Role == r {
			return x, true
		}
	}
	return Release{}, false
}

// Member returns the member entry of a node.
func (v View) Member(n NodeID) (Member, bool) {
	for _, m := range v.Members {
		if m.Node == n {
			return m, true
		}
	}
	return Member{}, false
}

// Held returns the operation that holds an exclusive scope.
func (v View) Held(s Scope) (ExclusiveLease, bool) {
	for _, x := range v.Exclusive {
		if x.Scope == s {
			return x, true
		}
	}
	return ExclusiveLease{}, false
}

// Abandoned reports whether nobody has the authority to complete a held
// operation any more: its owner is no member, was replaced by another process,
// or lost the coordinator role under which it began. What it did is unknown
// until a successor has inspected it (§245, §246); no clock abandons one.
func (v View) Abandoned(x ExclusiveLease) bool {
	m, _ := v.Member(x.Owner)
	role, _ := x.Scope.Coordinator()
	return x.abandoned(m, v.Role(role))
}

func (x ExclusiveLease) abandoned(owner Member, coordinator RoleGrant) bool {
	if owner.Node != x.Owner || owner.Incarnation != x.Incarnation {
		return true
	}
	_, coordinated := x.Scope.Coordinator()
	return coordinated && (!coordinator.HeldBy(x.Owner, x.Incarnation) || coordinator.Epoch > x.Epoch)
}

// Tombstoned reports whether the id was removed and may never return.
func (v View) Tombstoned(n NodeID) bool { return slices.Contains(v.RemovedIDs, n) }
