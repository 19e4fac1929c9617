// Fenced work: the only writes of leader-owned columns (§28, §302).

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgeyard/forgeyard/cluster"
)

// authority is what the database compares: a guard without its life.
type authority struct {
	role        int16
	generation  int64
	epoch       int64
	owner       string
	incarnation string
}

func authorityOf(g cluster.RoleGuard) authority {
	return authority{
		role: int16(g.Role()), generation: int64(g.Generation()), epoch: int64(g.Epoch()),
		owner: g.Owner().String(), incarnation: g.Incarnation().String(),
	}
}

// Fenced runs what fill queues in one transaction and one round trip, admitted
// by the guard's fence: if the fence row is not exactly at the guard's
// generation and epoch, nothing happens and the error is cluster.ErrFenced.
//
// nil means committed, and only then may anything be acknowledged, dispatched
// or woken: the results that callbacks of the queued queries saw before are not
// yet true. On FENCED and on an unknown outcome the guard is revoked before
// Fenced returns (Classify tells which it was); any other error left nothing
// behind and the guard goes on.
//
// fill must not queue BEGIN, COMMIT or a statement that changes the isolation
// level. A callback that returns an error (pgx.ErrNoRows among them) hides the
// commit's answer, so it makes the outcome unknown: let callbacks note what
// they saw and return nil.
func (s *Store) Fenced(ctx context.Context, g cluster.RoleGuard, fill func(*pgx.Batch)) (err error) {
	op, end := s.operation(ctx, OperationWrite, g)
	defer func() { end(err) }()
	if err := g.Check(); err != nil {
		return err
	}
	ctx, cancel := underGuard(ctx, g)
	defer cancel()
	err = s.sendFenced(ctx, s.fenced, authorityOf(g), op.sending(g), fill)
	switch Classify(err) {
	case Lost, Unknown:
		g.Lost(err)
	}
	return err
}

// sendFenced sends the fence and then what fill queues as one batch without
// BEGIN and COMMIT: one implicit transaction, a fresh snapshot for every
// statement (the fence row is read after its lock was granted), and a session
// that is idle again after an error. still is asked once more when a connection
// has been waited for.
func (s *Store) sendFenced(ctx context.Context, p *pgxpool.Pool, a authority, still func() error, fill func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	b.Queue("SELECT coordination.fence($1, $2, $3)", a.role, a.generation, a.epoch)
	if fill != nil {
		fill(b)
	}
	plantedFence(b, a)
	return s.use(ctx, p, func(ctx context.Context, c *pgx.Conn) error {
		if err := still(); err != nil {
			return err
		}
		return send(ctx, c, b)
	})
}

// underGuard ends ctx also when the guard is revoked.
func underGuard(ctx context.Context, g cluster.RoleGuard) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.Context(), func() { cancel(context.Cause(g.Context())) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// AssertFence asks the database whether the guard's fence still stands; a quiet
// role calls it on a timer, so that a lost fence is noticed without a write. On
// FENCED the guard is revoked. It writes nothing, so any other failure (the
// database is down) costs nothing and says nothing about the epoch.
func (s *Store) AssertFence(ctx context.Context, g cluster.RoleGuard) (err error) {
	op, end := s.operation(ctx, OperationAssert, g)
	defer func() { end(err) }()
	if err := g.Check(); err != nil {
		return err
	}
	ctx, cancel := underGuard(ctx, g)
	defer cancel()
	err = s.sendFenced(ctx, s.reserved, authorityOf(g), op.sending(g), nil)
	if Classify(err) == Lost {
		g.Lost(err)
	}
	return err
}

// Bounds of a raise.
const (
	raiseBudget = 5 * time.Second // over all attempts
	raiseRetry  = 50 * time.Millisecond
)

// RaiseFence moves the role's fence up to the guard's epoch; nothing may be
// read or written for the role before it returned nil (§83). It repeats an
// attempt whose reply was lost, for the raise is idempotent, and takes at most
// about 5 s.
//
// ErrDatabaseAhead and ErrDatabaseHistory are final until an operator acts: the
// role must stay unassigned. cluster.ErrFenced: a later owner exists.
func (s *Store) RaiseFence(ctx context.Context, g cluster.RoleGuard) (err error) {
	op, end := s.operation(ctx, OperationRaise, g)
	defer func() { end(err) }()
	ctx, cancel := underGuard(ctx, g)
	defer cancel()
	ctx, cancelBudget := context.WithTimeout(ctx, raiseBudget)
	defer cancelBudget()
	var why error // of the last attempt that had its time
	for {
		if err := g.CheckGranted(); err != nil {
			return err
		}
		op.Sent = true
		err := s.raise(ctx, authorityOf(g))
		if why == nil || ctx.Err() == nil {
			why = err
		}
		switch code := state(err); {
		case err == nil:
			return g.CheckGranted()
		case code == "FY001":
			g.Lost(err)
			return err
		case code == "FY003":
			return s.ahead(ctx, g, err)
		case code == "55P03":
			return ErrRaiseBlocked.Wrap(err, "")
		case code == "FY004", Classify(err) == NotApplied && !Retryable(err):
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(why, context.Cause(ctx))
		case <-time.After(raiseRetry):
		}
	}
}

func (s *Store) raise(ctx context.Context, a authority) error {
	return s.use(ctx, s.reserved, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SELECT coordination.raise_fence($1, $2, $3, $4, $5)", a.role, a.generation, a.epoch, a.owner, a.incarnation)
		return err
	})
}

// ahead decides what a fence above the guard's epoch means. Usually the next
// owner was quicker and this node has not heard of it yet. If the guard is
// still good after the bound within which it must be confirmed anew, then the
// committed view itself is behind the database.
func (s *Store) ahead(ctx context.Context, g cluster.RoleGuard, cause error) error {
	select {
	case <-ctx.Done():
	case <-time.After(cluster.ConfirmationBound + raiseRetry):
	}
	if g.CheckGranted() != nil {
		return cluster.ErrFenced.Wrap(cause, "the next owner has raised the fence")
	}
	err := ErrDatabaseAhead.Wrap(cause, "%s: the database fence is above the committed epoch %d", g.Role(), g.Epoch())
	s.cfg.Logger.Error("role stays unassigned", "role", g.Role(), "generation", g.Generation(), "epoch", g.Epoch(), "err", err)
	return fmt.Errorf("raise the fence: %w", err)
}
