// State: the replicated coordination state (§46), its copies and its hash.

package fsm

import (
	"crypto/sha256"
	"slices"
)

// SchemaVersion is the version of the state's encoding (§149).
const SchemaVersion uint32 = 1

// State is the coordination state machine of one replica. It is not safe for
// concurrent use: whoever applies entries owns it and hands out Views.
type State struct {
	body body
	// at is the last entry handed to Apply. It is not part of the state that
	// commands read or Hash covers: a rejected entry moves it and nothing else.
	at entry
}

// entry is a position in the replicated log.
type entry struct {
	Index uint64 `cbor:"1,keyasint"`
	Term  uint64 `cbor:"2,keyasint"`
}

// body is everything that is replicated, and nothing else (§46, §52). Lists are
// sorted and hold at most one entry per key; Recent is in order of application.
type body struct {
	Schema           uint32           `cbor:"1,keyasint"`
	ClusterID        ClusterID        `cbor:"2,keyasint"`
	ClusterName      string           `cbor:"3,keyasint"`
	Generation       Generation       `cbor:"4,keyasint"`
	Epoch            Epoch            `cbor:"5,keyasint"` // the counter: the last epoch handed out
	Leader           leader           `cbor:"6,keyasint"`
	Config           configuration    `cbor:"7,keyasint"`
	Roles            []RoleGrant      `cbor:"8,keyasint"`
	Releases         []Release        `cbor:"9,keyasint"`
	Exclusive        []ExclusiveLease `cbor:"10,keyasint"`
	Maintenance      Maintenance      `cbor:"11,keyasint"`
	MaintenanceEpoch Epoch            `cbor:"12,keyasint"`
	Feature          FeatureVersion   `cbor:"13,keyasint"`
	Recent           []request        `cbor:"14,keyasint"`
	Removed          []NodeID         `cbor:"15,keyasint"`
}

// leader is the current coordination leadership (§24) and who committed it.
type leader struct {
	Epoch       LeaderEpoch   `cbor:"1,keyasint"`
	Node        NodeID        `cbor:"2,keyasint"`
	Incarnation IncarnationID `cbor:"3,keyasint"`
}

// configuration is the cluster configuration (§20), members in node order.
type configuration struct {
	Version ConfigVersion `cbor:"1,keyasint"`
	Members []Member      `cbor:"2,keyasint"`
}

// request is an accepted request and what its first application returned.
type request struct {
	ID     RequestID `cbor:"1,keyasint"`
	Result Result    `cbor:"2,keyasint"`
}

// NewState returns the state before InitCluster: no cluster, no member, every counter 0.
func NewState() *State {
	// Empty lists are not nil, so that views print them as [] in JSON.
	return &State{body: body{
		Schema:    SchemaVersion,
		Config:    configuration{Members: []Member{}},
		Roles:     []RoleGrant{},
		Releases:  []Release{},
		Exclusive: []ExclusiveLease{},
		Recent:    []request{},
		Removed:   []NodeID{},
	}}
}

func (b body) clone() body {
	b.Config.Members = slices.Clone(b.Config.Members)
	b.Roles = slices.Clone(b.Roles)
	b.Releases = slices.Clone(b.Releases)
	b.Exclusive = slices.Clone(b.Exclusive)
	b.Recent = slices.Clone(b.Recent)
	b.Removed = slices.Clone(b.Removed)
	return b
}

// Clone returns an independent copy.
func (s *State) Clone() *State { return &State{body: s.body.clone(), at: s.at} }

// Hash is the SHA-256 of the encoded state: equal on every replica that applied
// the same entries. The position in the log is not part of it.
func (s *State) Hash() [sha256.Size]byte {
	return sha256.Sum256(encodeBody(s.body))
}

// View returns an immutable copy of the committed state (§160). Index and Term
// are those of the last entry handed to Apply, rejected or not.
func (s *State) View() View {
	b := s.body.clone()
	return View{
		ClusterID: b.ClusterID, ClusterName: b.ClusterName, Generation: b.Generation,
		Term: s.at.Term, Index: s.at.Index,
		LeaderEpoch: b.Leader.Epoch, Leader: b.Leader.Node, LeaderInc: b.Leader.Incarnation,
		Epoch: b.Epoch, Config: b.Config.Version, Members: b.Config.Members,
		Roles: b.Roles, Releases: b.Releases, Exclusive: b.Exclusive,
		Maintenance: b.Maintenance, MaintenanceEpoch: b.MaintenanceEpoch,
		Feature: b.Feature, RemovedIDs: b.Removed,
	}
}

// take hands out the next epoch (§23).
func (b *body) take() Epoch {
	b.Epoch++
	return b.Epoch
}

func (b *body) member(n NodeID) (int, bool) {
	return slices.BinarySearchFunc(b.Config.Members, n, func(m Member, n NodeID) int { return m.Node.Compare(n) })
}

func (b *body) role(r Role) (int, bool) {
	return slices.BinarySearchFunc(b.Roles, r, func(g RoleGrant, r Role) int { return int(g.Role) - int(r) })
}

func (b *body) release(r Role) (int, bool) {
	return slices.BinarySearchFunc(b.Releases, r, func(x Release, r Role) int { return int(x.Role) - int(r) })
}

func (b *body) scope(s Scope) (int, bool) {
	return slices.BinarySearchFunc(b.Exclusive, s, func(x ExclusiveLease, s Scope) int { return int(x.Scope) - int(s) })
}

func (b *body) removed(n NodeID) (int, bool) {
	return slices.BinarySearchFunc(b.Removed, n, NodeID.Compare)
}

// grant returns the role's current grant; the zero grant when it was never granted.
func (b *body) grant(r Role) RoleGrant {
	if i, ok := b.role(r); ok {
		return b.Roles[i]
	}
	return RoleGrant{Role: r}
}

func (b *body) setGrant(g RoleGrant) {
	i, ok := b.role(g.Role)
	if !ok {
		b.Roles = slices.Insert(b.Roles, i, g)
		return
	}
	b.Roles[i] = g
}
