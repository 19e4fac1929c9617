// What is told about each fenced operation: once, when its outcome is known (§250, §252, §254).

package store

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// OperationKind names what was done with the fence. The set is closed, so it may be a metric label.
type OperationKind string

// The fenced operations.
const (
	OperationWrite  OperationKind = "write"  // Fenced
	OperationAssert OperationKind = "assert" // AssertFence
	OperationRaise  OperationKind = "raise"  // RaiseFence, with all its attempts
)

// Operation is one fenced operation and how it ended. Role, Generation and
// Epoch are the guard's, zero for the zero guard; the error of a refusal by the
// database also names the epoch that stands there.
type Operation struct {
	Kind       OperationKind
	Role       fsm.Role
	Generation fsm.Generation
	Epoch      fsm.Epoch
	Began      time.Time     // on Config.Now
	Took       time.Duration // monotonic
	Sent       bool          // false: the database was not asked, for the guard refused or there was no connection
	Outcome    Outcome
	Err        error // nil when Applied
}

// operation begins one; the returned function ends it: it logs a lost epoch
// and tells Config.Observe, each once.
func (s *Store) operation(ctx context.Context, kind OperationKind, g cluster.RoleGuard) (*Operation, func(error)) {
	op := &Operation{Kind: kind, Role: g.Role(), Generation: g.Generation(), Epoch: g.Epoch(), Began: s.cfg.Now()}
	return op, func(err error) {
		op.Took, op.Outcome, op.Err = s.cfg.Now().Sub(op.Began), Classify(err), err
		s.report(*op)
		s.cfg.Observe(ctx, *op)
	}
}

// sending asks the guard a last time, when a connection is at hand.
func (op *Operation) sending(g cluster.RoleGuard) func() error {
	return func() error {
		err := g.Check()
		op.Sent = err == nil
		return err
	}
}

// report logs what costs a role its epoch. A guard's own refusal is the normal
// end of work that was queued behind a revocation, and was logged with its cause there.
func (s *Store) report(op Operation) {
	if !op.Sent || op.Outcome != Lost && (op.Outcome != Unknown || op.Kind != OperationWrite) {
		return
	}
	s.cfg.Logger.Warn("epoch lost at a fenced operation", "operation", op.Kind, "role", op.Role,
		"generation", op.Generation, "epoch", op.Epoch, "outcome", op.Outcome, "err", op.Err)
}
