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

// Command is one of the closed set; only this package defines any.
type Command interface {
	Kind() CommandKind
	sealed()
}

// InitCluster creates the cluster: its id, its name and its first voter. Refused on an initialised state.
type InitCluster struct {
	ClusterID ClusterID
	Name      string
	Founder   Member // becomes Voter, Active
}

// AddLearner admits an unknown node as Learner (or Observer) in state Joining.
// A member is refused, a removed id is refused for ever.
type AddLearner struct {
	ExpectedConfig ConfigVersion
	Member         Member // Role Learner or Observer
}

// PromoteVoter makes an Active Learner a Voter.
type PromoteVoter struct {
	ExpectedConfig ConfigVersion
	Node           NodeID
}

// RemoveMember removes a Leaving member (Force: in any state), strips its roles
// and exclusive operations and leaves an id-only tombstone.
type RemoveMember struct {
	ExpectedConfig ConfigVersion
	Node           NodeID
	Force          bool
}

// UpdateMember changes what a member says of itself. ExpectedIncarnation is the
// committed one; a new Incarnation vacates the roles of the old one (§13).
// Zero fields of Set stay as they are.
type UpdateMember struct {
	Node                NodeID
	ExpectedIncarnation IncarnationID
	Incarnation         IncarnationID
	Name                string
	State               MemberState
	Endpoint            Endpoint
	Agents              Endpoint
	Protocol            VersionRange
	Build               string
}

// AssignRole gives a role to an Active Voter and takes a new epoch. Leader must
// be the current LeaderEpoch and ExpectedEpoch the role's current epoch.
type AssignRole struct {
	Leader        LeaderEpoch
	Role          Role
	ExpectedEpoch Epoch
	Owner         NodeID
	Incarnation   IncarnationID
}

// BumpEpoch takes a new epoch. With Role 0 it begins a coordination leadership:
// Term, Node and Incarnation are the new leader's, ExpectedEpoch the previous
// LeaderEpoch.Epoch. With a Role it renews the grant of the same owner after
// its epoch was spent.
type BumpEpoch struct {
	Role          Role
	Term          uint64 // leadership only
	ExpectedEpoch Epoch
	Node          NodeID
	Incarnation   IncarnationID
}

// ReleaseRole vacates a role: the owner gives it up (Leader zero) or the
// coordination leader vacates it (Leader current). Takes no epoch.
type ReleaseRole struct {
	Leader        LeaderEpoch
	Role          Role
	ExpectedEpoch Epoch
	Node          NodeID // the owner that loses the role
	Incarnation   IncarnationID
	Code          string
	Reason        string
}

// SetMaintenance changes the maintenance state and takes a new epoch for it.
type SetMaintenance struct {
	ExpectedEpoch Epoch // current MaintenanceEpoch
	State         Maintenance
}

// StartExclusiveOperation takes a free scope under a new epoch.
type StartExclusiveOperation struct {
	Scope       Scope
	Owner       NodeID
	Incarnation IncarnationID
}

// CompleteExclusiveOperation releases a scope; owner and epoch must match exactly.
type CompleteExclusiveOperation struct {
	Scope       Scope
	Owner       NodeID
	Incarnation IncarnationID
	Epoch       Epoch
}

// ActivateFeature raises the feature version by one once every voter supports it.
type ActivateFeature struct {
	Expected FeatureVersion
	Feature  FeatureVersion
}

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

func (InitCluster) sealed()                {}
func (AddLearner) sealed()                 {}
func (PromoteVoter) sealed()               {}
func (RemoveMember) sealed()               {}
func (UpdateMember) sealed()               {}
func (AssignRole) sealed()                 {}
func (BumpEpoch) sealed()                  {}
func (ReleaseRole) sealed()                {}
func (SetMaintenance) sealed()             {}
func (StartExclusiveOperation) sealed()    {}
func (CompleteExclusiveOperation) sealed() {}
func (ActivateFeature) sealed()            {}

// Proposal is a command with the request id that makes its retry harmless. It is what the log holds.
type Proposal struct {
	Request RequestID
	Command Command
}

// Result is what an accepted command produced. Fields that do not apply are 0.
type Result struct {
	Epoch  Epoch         // epoch taken or, for a release, ended
	Config ConfigVersion // configuration version afterwards
	NoOp   bool          // the command was accepted and changed nothing
	Replay bool          // the request was applied before; this is its first result
}
