// MaintenanceGuard: the capability that every destructive act on the cluster needs (§306).

package cluster

import (
	"fmt"

	"github.com/forgeyard/forgeyard/fsm"
)

// ErrNotInMaintenance: the cluster is not in the state that the destructive act needs.
var ErrNotInMaintenance = &Error{Kind: MembershipConflict, Code: "FY-MAINT-001", Message: "the cluster is not in the state that this act needs",
	Hint: "drain the member, set the maintenance state, or begin the exclusive operation first"}

// Destructive is an act that cannot be taken back.
type Destructive uint8

// The destructive acts, and what permits each:
//
//	act            permitted while
//	RemoveVoter    the cluster is in FullMaintenance, or the member is Leaving (drained)
//	MigrateCluster this process holds the ClusterMigration scope
//	RotateTrust    this process holds the TrustRootRotation scope
const (
	RemoveVoter    Destructive = 1
	MigrateCluster Destructive = 2
	RotateTrust    Destructive = 3
)

func (d Destructive) String() string {
	switch d {
	case RemoveVoter:
		return "RemoveVoter"
	case MigrateCluster:
		return "MigrateCluster"
	case RotateTrust:
		return "RotateTrust"
	}
	return fmt.Sprintf("Destructive(%d)", uint8(d))
}

// MaintenanceGuard proves that a destructive act was permitted, and says with
// Check whether it still is. Only Service issues one; the zero guard is refused.
type MaintenanceGuard struct {
	service *Service
	act     Destructive
	node    fsm.NodeID // of RemoveVoter
	basis   fsm.Epoch
}

// MaintenanceGuard issues the guard of an act; node is the member to remove and
// zero for the other acts. ErrNotInMaintenance when the committed view does not
// permit it, ErrUnconfirmed when the view is too old to tell.
func (s *Service) MaintenanceGuard(act Destructive, node fsm.NodeID) (MaintenanceGuard, error) {
	basis, err := s.permits(act, node)
	if err != nil {
		return MaintenanceGuard{}, err
	}
	return MaintenanceGuard{service: s, act: act, node: node, basis: basis}, nil
}

// Act is what is permitted; 0 for the zero guard.
func (g MaintenanceGuard) Act() Destructive { return g.act }

// Node is the member that RemoveVoter is about; zero otherwise.
func (g MaintenanceGuard) Node() fsm.NodeID { return g.node }

// Epoch is the maintenance epoch or the epoch of the exclusive operation on
// which the permission rests; 0 for a member that is Leaving.
func (g MaintenanceGuard) Epoch() fsm.Epoch { return g.basis }

// Check returns nil while the very state that permitted the act still holds;
// FENCED when it ended, also when an equal one began since.
func (g MaintenanceGuard) Check() error {
	if g.service == nil {
		return ErrFenced.Wrap(nil, "the zero guard permits nothing")
	}
	basis, err := g.service.permits(g.act, g.node)
	switch {
	case KindOf(err) == MembershipConflict, err == nil && basis != g.basis:
		return ErrFenced.Wrap(err, "%s was permitted under epoch %d, which is over", g.act, g.basis)
	case err != nil:
		return err
	}
	return nil
}

// permits returns the epoch on which the permission for an act rests.
func (s *Service) permits(act Destructive, node fsm.NodeID) (fsm.Epoch, error) {
	v, now := s.backend.View(), s.now()
	if v.Stale(now) {
		return 0, ErrUnconfirmed.Wrap(nil, "%s: the view was last confirmed %s ago", act, v.Age(now))
	}
	switch act {
	case RemoveVoter:
		m, known := v.Member(node)
		switch {
		case !known:
			return 0, ErrNotInMaintenance.Wrap(nil, "node %s is not a member", node)
		case v.Maintenance == fsm.FullMaintenance:
			return v.MaintenanceEpoch, nil
		case m.State == fsm.Leaving:
			return 0, nil
		}
		return 0, ErrNotInMaintenance.Wrap(nil, "node %s is %s and the cluster is in %s; a voter is removed once it is Leaving, or under FullMaintenance",
			m.Node, m.State, v.Maintenance)
	case MigrateCluster:
		return s.holds(v, act, fsm.ClusterMigration)
	case RotateTrust:
		return s.holds(v, act, fsm.TrustRootRotation)
	}
	return 0, ErrNotInMaintenance.Wrap(nil, "%s is no destructive act", act)
}

// holds returns the epoch of the exclusive operation that this process holds.
func (s *Service) holds(v View, act Destructive, scope fsm.Scope) (fsm.Epoch, error) {
	x, held := v.Held(scope)
	if !held || v.Abandoned(x) || x.Owner != s.self.Node || x.Incarnation != s.self.Incarnation {
		return 0, ErrNotInMaintenance.Wrap(nil, "%s needs the %s scope, which this process does not hold", act, scope)
	}
	return x.Epoch, nil
}
