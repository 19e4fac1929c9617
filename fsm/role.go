// Closed sets: coordinated roles, exclusive scopes, member roles and states, maintenance.

package fsm

import "fmt"

// Role is a coordinated responsibility (§42). The zero value is no role.
type Role uint8

// The four coordinated roles. The numbers are wire and lock numbers: never reuse one.
const (
	SchedulerLeader       Role = 1
	ReleaseCoordinator    Role = 2
	DeploymentCoordinator Role = 3
	MigrationCoordinator  Role = 4
)

// Roles returns every role in number order.
func Roles() []Role {
	return []Role{SchedulerLeader, ReleaseCoordinator, DeploymentCoordinator, MigrationCoordinator}
}

var roleNames = map[Role]string{
	SchedulerLeader: "SchedulerLeader", ReleaseCoordinator: "ReleaseCoordinator",
	DeploymentCoordinator: "DeploymentCoordinator", MigrationCoordinator: "MigrationCoordinator",
}

// Scope is a cluster-wide exclusive operation (§32); it takes no parameter.
type Scope uint8

// The five exclusive scopes.
const (
	ReleaseChannelPromotion Scope = 1
	ClusterMigration        Scope = 2
	TrustRootRotation       Scope = 3
	GlobalGcCoordination    Scope = 4
	DeploymentGlobalSwitch  Scope = 5
)

var scopeNames = map[Scope]string{
	ReleaseChannelPromotion: "ReleaseChannelPromotion", ClusterMigration: "ClusterMigration",
	TrustRootRotation: "TrustRootRotation", GlobalGcCoordination: "GlobalGcCoordination",
	DeploymentGlobalSwitch: "DeploymentGlobalSwitch",
}

// Coordinator returns the role whose owner alone may hold the scope; false when
// any Active member may.
func (s Scope) Coordinator() (Role, bool) {
	switch s {
	case ReleaseChannelPromotion:
		return ReleaseCoordinator, true
	case ClusterMigration:
		return MigrationCoordinator, true
	case DeploymentGlobalSwitch:
		return DeploymentCoordinator, true
	}
	return 0, false
}

// Scopes returns every scope in number order.
func Scopes() []Scope {
	return []Scope{ReleaseChannelPromotion, ClusterMigration, TrustRootRotation, GlobalGcCoordination, DeploymentGlobalSwitch}
}

// MemberRole is a member's part in consensus (§15).
type MemberRole uint8

// Voter counts in the quorum, Learner receives the log, Observer reads views only.
const (
	Voter    MemberRole = 1
	Learner  MemberRole = 2
	Observer MemberRole = 3
)

var memberRoleNames = map[MemberRole]string{Voter: "Voter", Learner: "Learner", Observer: "Observer"}

// MemberState is a member's place in its life (§19).
type MemberState uint8

// The states of a member. Legal moves: Joining→Active→Draining→Leaving→Removed,
// Draining→Active, and a forced move from any state to Removed.
const (
	Joining  MemberState = 1
	Active   MemberState = 2
	Draining MemberState = 3
	Leaving  MemberState = 4
	Removed  MemberState = 5
)

var memberStateNames = map[MemberState]string{
	Joining: "Joining", Active: "Active", Draining: "Draining", Leaving: "Leaving", Removed: "Removed",
}

// Maintenance is the cluster-wide maintenance state (§129); exactly one holds.
type Maintenance uint8

// The maintenance states.
const (
	Normal             Maintenance = 1
	ReadOnly           Maintenance = 2
	NoScheduling       Maintenance = 3
	NoReleasePromotion Maintenance = 4
	FullMaintenance    Maintenance = 5
)

var maintenanceNames = map[Maintenance]string{
	Normal: "Normal", ReadOnly: "ReadOnly", NoScheduling: "NoScheduling",
	NoReleasePromotion: "NoReleasePromotion", FullMaintenance: "FullMaintenance",
}

func (r Role) String() string        { return enumName("Role", roleNames, r) }
func (s Scope) String() string       { return enumName("Scope", scopeNames, s) }
func (r MemberRole) String() string  { return enumName("MemberRole", memberRoleNames, r) }
func (s MemberState) String() string { return enumName("MemberState", memberStateNames, s) }
func (m Maintenance) String() string { return enumName("Maintenance", maintenanceNames, m) }

// Valid reports whether the value is one of the closed set.
func (r Role) Valid() bool { return roleNames[r] != "" }

// Valid reports whether the value is one of the closed set.
func (s Scope) Valid() bool { return scopeNames[s] != "" }

// Valid reports whether the value is one of the closed set.
func (r MemberRole) Valid() bool { return memberRoleNames[r] != "" }

// Valid reports whether the value is one of the closed set.
func (s MemberState) Valid() bool { return memberStateNames[s] != "" }

// Valid reports whether the value is one of the closed set.
func (m Maintenance) Valid() bool { return maintenanceNames[m] != "" }

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) { return parseEnum("role", roleNames, s) }

// ParseScope reads a scope's name.
func ParseScope(s string) (Scope, error) { return parseEnum("exclusive scope", scopeNames, s) }

// ParseMemberRole reads a member role's name.
func ParseMemberRole(s string) (MemberRole, error) {
	return parseEnum("member role", memberRoleNames, s)
}

// ParseMaintenance reads a maintenance state's name.
func ParseMaintenance(s string) (Maintenance, error) {
	return parseEnum("maintenance state", maintenanceNames, s)
}

// MarshalText writes the name (JSON, logs).
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalText writes the name (JSON, logs).
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText writes the name (JSON, logs).
func (r MemberRole) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalText writes the name (JSON, logs).
func (s MemberState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText writes the name (JSON, logs).
func (m Maintenance) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name.
func (r *Role) UnmarshalText(b []byte) (err error) { *r, err = ParseRole(string(b)); return }

// UnmarshalText reads the name.
func (s *Scope) UnmarshalText(b []byte) (err error) { *s, err = ParseScope(string(b)); return }

// UnmarshalText reads the name.
func (r *MemberRole) UnmarshalText(b []byte) (err error) {
	*r, err = ParseMemberRole(string(b))
	return
}

// UnmarshalText reads the name.
func (s *MemberState) UnmarshalText(b []byte) (err error) {
	*s, err = parseEnum("member state", memberStateNames, string(b))
	return
}

// UnmarshalText reads the name.
func (m *Maintenance) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMaintenance(string(b))
	return
}

func enumName[T ~uint8](kind string, names map[T]string, v T) string {
	if n, ok := names[v]; ok {
		return n
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

func parseEnum[T ~uint8](what string, names map[T]string, s string) (T, error) {
	for v, n := range names {
		if n == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q", what, s)
}
