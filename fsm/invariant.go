// Invariants of the state: what every sequence of accepted commands preserves and every snapshot must show.

package fsm

import (
	"errors"
	"fmt"
	"slices"
)

// checkInvariants returns the first invariant that does not hold. It is the
// gate of DecodeSnapshot, since a valid checksum proves only who wrote a state.
func (b *body) checkInvariants() error {
	if b.Schema != SchemaVersion {
		return fmt.Errorf("state schema %d, this build knows %d", b.Schema, SchemaVersion)
	}
	if b.ClusterID.IsZero() {
		return b.checkBlank()
	}
	if b.Generation < FirstGeneration {
		return errors.New("generation 0")
	}
	if !b.Maintenance.Valid() {
		return errNoValue
	}
	if err := checkLabel("cluster name", b.ClusterName, MaxName); err != nil {
		return err
	}
	if b.MaintenanceEpoch > b.Epoch || b.Leader.Epoch.Epoch > b.Epoch {
		return errors.New("an epoch above the counter")
	}
	return errors.Join(b.checkMembers(), b.checkRoles(), b.checkExclusive(), b.checkRecent())
}

// checkBlank: before InitCluster nothing can have been accepted.
func (b *body) checkBlank() error {
	blank := NewState().body
	if !slices.Equal(encodeBody(*b), encodeBody(blank)) {
		return errors.New("content without a cluster id")
	}
	return nil
}

func (b *body) checkMembers() error {
	ms := b.Config.Members
	if len(ms) == 0 || len(ms) > MaxMembers || len(b.Removed) > MaxRemoved || b.Config.Version == 0 {
		return errors.New("membership out of bounds")
	}
	if !strictly(ms, func(x, y Member) int { return x.Node.Compare(y.Node) }) || !strictly(b.Removed, NodeID.Compare) {
		return errors.New("members or removed ids out of order")
	}
	voters := 0
	for _, m := range ms {
		if !m.Role.Valid() || !m.State.Valid() || m.State == Removed {
			return errNoValue
		}
		if m.Endpoint != "" {
			if err := m.Endpoint.Check(); err != nil {
				return err
			}
		}
		if err := m.check(); err != nil {
			return err
		}
		if _, gone := b.removed(m.Node); gone {
			return fmt.Errorf("member %s is also removed", m.Node)
		}
		if m.Role == Voter {
			voters++
		}
	}
	if voters == 0 {
		return errors.New("no voter")
	}
	return nil
}

func (b *body) checkRoles() error {
	if !strictly(b.Roles, func(x, y RoleGrant) int { return int(x.Role) - int(y.Role) }) ||
		!strictly(b.Releases, func(x, y Release) int { return int(x.Role) - int(y.Role) }) {
		return errors.New("roles out of order")
	}
	for _, g := range b.Roles {
		if !g.Role.Valid() || g.Epoch == 0 || g.Epoch > b.Epoch || g.Vacant() != g.Incarnation.IsZero() {
			return fmt.Errorf("grant of %s out of bounds", g.Role)
		}
		if err := b.checkOwner(g.Owner, g.Incarnation); err != nil && !g.Vacant() {
			return fmt.Errorf("%s: %w", g.Role, err)
		}
	}
	for _, x := range b.Releases {
		if !x.Role.Valid() || x.Epoch == 0 || x.Epoch > b.grant(x.Role).Epoch {
			return fmt.Errorf("release of %s out of bounds", x.Role)
		}
		if err := errors.Join(checkLabel("code", x.Code, MaxCode), checkLabel("reason", x.Reason, MaxReason)); err != nil {
			return err
		}
	}
	return nil
}

func (b *body) checkExclusive() error {
	if !strictly(b.Exclusive, func(x, y ExclusiveLease) int { return int(x.Scope) - int(y.Scope) }) {
		return errors.New("exclusive operations out of order")
	}
	for _, x := range b.Exclusive {
		if !x.Scope.Valid() || x.Epoch == 0 || x.Epoch > b.Epoch {
			return fmt.Errorf("exclusive %s out of bounds", x.Scope)
		}
		_, known := b.member(x.Owner)
		_, removed := b.removed(x.Owner)
		if !known && !removed || x.Incarnation.IsZero() {
			return fmt.Errorf("exclusive %s is held by no process that ever was", x.Scope)
		}
	}
	return nil
}

func (b *body) checkRecent() error {
	if len(b.Recent) > MaxRecent {
		return errors.New("too many recent requests")
	}
	seen := make(map[RequestID]bool, len(b.Recent))
	for _, r := range b.Recent {
		if r.ID.IsZero() || seen[r.ID] || r.Result.Epoch > b.Epoch || r.Result.Config > b.Config.Version {
			return fmt.Errorf("recent request %s out of bounds", r.ID)
		}
		seen[r.ID] = true
	}
	return nil
}

func (b *body) checkOwner(n NodeID, inc IncarnationID) error {
	if _, rej := b.process(n, inc); rej != nil {
		return rej
	}
	return nil
}

// strictly reports whether the list rises strictly: sorted, no key twice.
func strictly[T any](list []T, compare func(x, y T) int) bool {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return false
		}
	}
	return true
}
