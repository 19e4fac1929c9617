// The closed command set (§45) and what every command must state before it may change anything.

package fsm

// CommandKind numbers the commands on the wire; never reuse a number.
type CommandKind uint8

// The closed command set: the eight of §45 and four that §12, §19, §125 and §155 need.
const (
	KindInitCluster       CommandKind = 1
	KindAddLearner        CommandKind = 2
	KindPromoteVoter      CommandKind = 3
	KindRemoveMember      CommandKind = 4
	KindUpdateMember      CommandKind = 5
	KindAssignRole        CommandKind = 6
	KindBumpEpoch         CommandKind = 7
	KindReleaseRole       CommandKind = 8
	KindSetMaintenance    CommandKind = 9
	KindStartExclusive    CommandKind = 10
	KindCompleteExclusive CommandKind = 11
	KindActivateFeature   CommandKind = 12
)

var kindNames = map[CommandKind]string{
	KindInitCluster: "InitCluster", KindAddLearner: "AddLearner", KindPromoteVoter: "PromoteVoter",
	KindRemoveMember: "RemoveMember", KindUpdateMember: "UpdateMember", KindAssignRole: "AssignRole",
	KindBumpEpoch: "BumpEpoch", KindReleaseRole: "ReleaseRole", KindSetMaintenance: "SetMaintenance",
	KindStartExclusive: "StartExclusiveOperation", KindCompleteExclusive: "CompleteExclusiveOperation",
	KindActivateFeature: "ActivateFeature",
}

func (k CommandKind) String() string { return enumName("CommandKind", kindNames, k) }

// Command is one of the closed set; only this package defines any.
type Command interface {
	Kind() CommandKind
	// check refuses what no state could accept: unknown enum values, zero ids, oversized text.
	check() error
	// apply changes b, which is a private copy; on a rejection the copy is dropped.
	apply(b *body, e entry) (Result, *Rejection)
}

// InitCluster creates the cluster: its id, its name and its first voter. Refused on an initialised state.
type InitCluster struct {
	ClusterID ClusterID `cbor:"1,keyasint"`
	Name      string    `cbor:"2,keyasint"`
	Founder   Member    `cbor:"3,keyasint"` // becomes Voter, Active
}

// AddLearner admits an unknown node as Learner (or Observer) in state Joining.
// A member is refused, a removed id is refused for ever.
type AddLearner struct {
	ExpectedConfig ConfigVersion `cbor:"1,keyasint"`
	Member         Member        `cbor:"2,keyasint"` // Role Learner or Observer
}

// PromoteVoter makes an Active Learner a Voter.
type PromoteVoter struct {
	ExpectedConfig ConfigVersion `cbor:"1,keyasint"`
	Node           NodeID        `cbor:"2,keyasint"`
}

// RemoveMember removes a Leaving member (Force: in any state), strips its roles,
// abandons its exclusive operations and leaves an id-only tombstone.
type RemoveMember struct {
	ExpectedConfig ConfigVersion `cbor:"1,keyasint"`
	Node           NodeID        `cbor:"2,keyasint"`
	Force          bool          `cbor:"3,keyasint"`
}

// UpdateMember changes what a member says of itself. ExpectedIncarnation is the
// committed one; a new Incarnation vacates the roles of the old one (§13).
// Zero fields leave what they name as it is.
type UpdateMember struct {
	Node                NodeID        `cbor:"1,keyasint"`
	ExpectedIncarnation IncarnationID `cbor:"2,keyasint"`
	Incarnation         IncarnationID `cbor:"3,keyasint"`
	Name                string        `cbor:"4,keyasint"`
	State               MemberState   `cbor:"5,keyasint"`
	Endpoint            Endpoint      `cbor:"6,keyasint"`
	Agents              Endpoint      `cbor:"7,keyasint"`
	Protocol            VersionRange  `cbor:"8,keyasint"`
	Build               string        `cbor:"9,keyasint"`
}

// AssignRole gives a role to an Active Voter and takes a new epoch. Leader must
// be the current LeaderEpoch and ExpectedEpoch the role's current epoch.
type AssignRole struct {
	Leader        LeaderEpoch   `cbor:"1,keyasint"`
	Role          Role          `cbor:"2,keyasint"`
	ExpectedEpoch Epoch         `cbor:"3,keyasint"`
	Owner         NodeID        `cbor:"4,keyasint"`
	Incarnation   IncarnationID `cbor:"5,keyasint"`
}

// BumpEpoch takes a new epoch. With Role 0 it begins a coordination leadership:
// Term, Node and Incarnation are the new leader's, ExpectedEpoch the previous
// LeaderEpoch.Epoch. With a Role it renews the grant of the same owner after
// its epoch was spent.
type BumpEpoch struct {
	Role          Role          `cbor:"1,keyasint"`
	Term          uint64        `cbor:"2,keyasint"` // leadership only
	ExpectedEpoch Epoch         `cbor:"3,keyasint"`
	Node          NodeID        `cbor:"4,keyasint"`
	Incarnation   IncarnationID `cbor:"5,keyasint"`
}

// ReleaseRole vacates a role: the owner gives it up (Leader zero) or the
// coordination leader vacates it (Leader current). Takes no epoch.
type ReleaseRole struct {
	Leader        LeaderEpoch   `cbor:"1,keyasint"`
	Role          Role          `cbor:"2,keyasint"`
	ExpectedEpoch Epoch         `cbor:"3,keyasint"`
	Node          NodeID        `cbor:"4,keyasint"` // the owner that loses the role
	Incarnation   IncarnationID `cbor:"5,keyasint"`
	Code          string        `cbor:"6,keyasint"`
	Reason        string        `cbor:"7,keyasint"`
}

// SetMaintenance changes the maintenance state and takes a new epoch for it.
type SetMaintenance struct {
	ExpectedEpoch Epoch       `cbor:"1,keyasint"` // current MaintenanceEpoch
	State         Maintenance `cbor:"2,keyasint"`
}

// StartExclusiveOperation takes a free scope under a new epoch. A scope with a
// Coordinator is started by the owner of that role only. With Abandoned it takes
// over the abandoned operation of that epoch instead, whose effects are unknown
// until its new owner has inspected them (§245, §246).
type StartExclusiveOperation struct {
	Scope       Scope         `cbor:"1,keyasint"`
	Owner       NodeID        `cbor:"2,keyasint"`
	Incarnation IncarnationID `cbor:"3,keyasint"`
	Abandoned   Epoch         `cbor:"4,keyasint,omitempty"`
}

// CompleteExclusiveOperation releases a scope; owner and epoch must match exactly.
type CompleteExclusiveOperation struct {
	Scope       Scope         `cbor:"1,keyasint"`
	Owner       NodeID        `cbor:"2,keyasint"`
	Incarnation IncarnationID `cbor:"3,keyasint"`
	Epoch       Epoch         `cbor:"4,keyasint"`
}

// ActivateFeature raises the feature version by one once every voter supports it.
type ActivateFeature struct {
	Expected FeatureVersion `cbor:"1,keyasint"`
	Feature  FeatureVersion `cbor:"2,keyasint"`
}

// Kind is the number of the command in the codec; each of these implements Command.
func (InitCluster) Kind() CommandKind                { return KindInitCluster }
func (AddLearner) Kind() CommandKind                 { return KindAddLearner }
func (PromoteVoter) Kind() CommandKind               { return KindPromoteVoter }
func (RemoveMember) Kind() CommandKind               { return KindRemoveMember }
func (UpdateMember) Kind() CommandKind               { return KindUpdateMember }
func (AssignRole) Kind() CommandKind                 { return KindAssignRole }
func (BumpEpoch) Kind() CommandKind                  { return KindBumpEpoch }
func (ReleaseRole) Kind() CommandKind                { return KindReleaseRole }
func (SetMaintenance) Kind() CommandKind             { return KindSetMaintenance }
func (StartExclusiveOperation) Kind() CommandKind    { return KindStartExclusive }
func (CompleteExclusiveOperation) Kind() CommandKind { return KindCompleteExclusive }
func (ActivateFeature) Kind() CommandKind            { return KindActivateFeature }

// Proposal is a command with the request id that makes its retry harmless. It is what the log holds.
type Proposal struct {
	Request RequestID
	Command Command
}

// Result is what an accepted command produced. Fields that do not apply are 0.
type Result struct {
	Epoch  Epoch         `cbor:"1,keyasint"` // epoch taken or, for a release, ended
	Config ConfigVersion `cbor:"2,keyasint"` // configuration version afterwards
	NoOp   bool          `cbor:"3,keyasint"` // the command was accepted and changed nothing
	Replay bool          `cbor:"-"`          // the request was applied before; this is its first result
}
