// RoleGuard: the capability that every leader-owned mutation needs (§297–§305).

package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// GuardState is how far a grant has come: Granted → Fenced → Active → Revoked.
type GuardState int32

// The states of a guard. Only raising the fence is allowed in Granted,
// reconciliation may write from Fenced on, loops run in Active.
const (
	GuardNone    GuardState = 0
	GuardGranted GuardState = 1
	GuardFenced  GuardState = 2
	GuardActive  GuardState = 3
	GuardRevoked GuardState = 4
)

func (s GuardState) String() string {
	switch s {
	case GuardNone:
		return "none"
	case GuardGranted:
		return "granted"
	case GuardFenced:
		return "fenced"
	case GuardActive:
		return "active"
	case GuardRevoked:
		return "revoked"
	}
	return fmt.Sprintf("GuardState(%d)", int32(s))
}

// MarshalText writes the name.
func (s GuardState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name.
func (s *GuardState) UnmarshalText(b []byte) error {
	for v := GuardNone; v <= GuardRevoked; v++ {
		if v.String() == string(b) {
			*s = v
			return nil
		}
	}
	return fmt.Errorf("unknown guard state %q", b)
}

// RoleGuard proves that the committed view gave a role to this process under an
// epoch. Only Service mints one; the zero guard is refused everywhere. Copies
// share one cell, so a revocation reaches all of them at once.
type RoleGuard struct {
	cell *cell
}

// cell is the shared state of one grant. The Service owns it.
type cell struct {
	role        fsm.Role
	epoch       fsm.Epoch
	generation  fsm.Generation
	node        fsm.NodeID
	incarnation fsm.IncarnationID

	state     atomic.Int32 // GuardState
	valid     atomic.Bool  // false once the epoch is invalidated
	ctx       context.Context
	cancel    context.CancelCauseFunc
	confirmed func() time.Time
	now       func() time.Time
	lost      func(c *cell, cause error) // tells the Service, which revokes before it returns
	traced    atomic.Bool                // the first refusal was traced
	refused   func(c *cell, err error)   // traces it
}

// Role is the guarded role; 0 for the zero guard.
func (g RoleGuard) Role() fsm.Role {
	if g.cell == nil {
		return 0
	}
	return g.cell.role
}

// Epoch is the grant's epoch; 0 for the zero guard.
func (g RoleGuard) Epoch() fsm.Epoch {
	if g.cell == nil {
		return 0
	}
	return g.cell.epoch
}

// Generation is the cluster's recovery generation at the grant.
func (g RoleGuard) Generation() fsm.Generation {
	if g.cell == nil {
		return 0
	}
	return g.cell.generation
}

// Owner is the node that holds the grant.
func (g RoleGuard) Owner() fsm.NodeID {
	if g.cell == nil {
		return fsm.NodeID{}
	}
	return g.cell.node
}

// Incarnation is the process that holds the grant.
func (g RoleGuard) Incarnation() fsm.IncarnationID {
	if g.cell == nil {
		return fsm.IncarnationID{}
	}
	return g.cell.incarnation
}

// State is the grant's state now; GuardNone for the zero guard.
func (g RoleGuard) State() GuardState {
	if g.cell == nil {
		return GuardNone
	}
	return GuardState(g.cell.state.Load())
}

// Context ends when the guard is revoked; context.Cause tells why.
func (g RoleGuard) Context() context.Context {
	if g.cell == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrFenced)
		return ctx
	}
	return g.cell.ctx
}

// CheckGranted returns nil when the guard may raise its fence.
func (g RoleGuard) CheckGranted() error { return g.check(GuardGranted) }

// Check returns nil when the guard may write: reconciliation and loops call it
// before every mutation. It reads atomics only and compares the monotonic clock
// with the last confirmation, so a process that wakes from a pause refuses
// before any timer fires (§288).
func (g RoleGuard) Check() error { return g.check(GuardFenced) }

// CheckActive returns nil when loops may work.
func (g RoleGuard) CheckActive() error { return g.check(GuardActive) }

func (g RoleGuard) check(least GuardState) error {
	c := g.cell
	if c == nil {
		return ErrFenced.Wrap(nil, "the zero guard may not write")
	}
	err := c.check(least)
	if err == nil {
		return nil
	}
	if c.traced.CompareAndSwap(false, true) {
		c.refused(c, err)
	}
	if err.Code == ErrUnconfirmed.Code {
		c.lost(c, err)
	}
	return err
}

func (c *cell) check(least GuardState) *Error {
	st := GuardState(c.state.Load())
	if !c.valid.Load() || st == GuardRevoked || st < least {
		return ErrFenced.Wrap(context.Cause(c.ctx), "%s epoch %d is %s", c.role, c.epoch, st)
	}
	if age := c.now().Sub(c.confirmed()); age > ConfirmationBound {
		return ErrUnconfirmed.Wrap(nil, "%s epoch %d: the view was last confirmed %s ago", c.role, c.epoch, age)
	}
	return nil
}

// Lost tells the Service that a call under this guard saw FENCED or an unknown
// outcome: the guard is revoked before Lost returns, and its epoch is spent.
func (g RoleGuard) Lost(cause error) {
	if g.cell != nil {
		g.cell.lost(g.cell, cause)
	}
}
