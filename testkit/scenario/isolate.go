// A leader that the other daemons cannot reach, while PostgreSQL still can be: the database must refuse what it cannot know.

package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// stopsWithin is how soon an isolated leader has stopped its roles:
// LeaderLeaseTimeout (250 ms) and 250 ms.
const stopsWithin = 500 * time.Millisecond

// IsolateOwner cuts the leader, which owns the role, off from all daemons under load, not from
// PostgreSQL. It stops its role by itself, the majority owns it, and a late write
// of the old epoch, sent by the isolated daemon's own way, is FENCED. Healed, the
// daemon follows.
func IsolateOwner(t testing.TB, w *World) {
	w.moreLeases(t, 20)
	dropped := w.dropped(t)
	b := w.strike(t, w.leadingOwner(t),
		func(n *fleet.Node) { require.NoError(t, w.Partition(n.Name, false)) },
		func(n *fleet.Node) { require.NoError(t, w.Heal(n.Name)) })
	owner, before := b.owner, b.epoch
	within(t, stopsWithin, b.at, b.ended.Mono, "isolated "+owner.Name+" stopped")
	successor, after := w.owner(t, before)
	require.NotEqual(t, owner.Name, successor.Name)
	require.Greater(t, w.dropped(t), dropped, "nothing was cut")
	lateWriteIsFenced(t, owner, before)
	w.moreLeases(t, 10)

	require.NoError(t, w.Heal(owner.Name))
	s := w.whole(t, owner)
	require.NotEqual(t, owner.ID, s.Leader.Node, "the isolated leader leads on")
	t.Logf("epoch %d of %s -> %d of %s", before, owner.Name, after, successor.Name)
}

// IsolateOwnerBy is IsolateOwner with links that are cut in another way. The
// fleet's daemons need networks of their own.
func IsolateOwnerBy(t testing.TB, w *World, how fleet.Cutting) {
	require.True(t, w.CutBy(how), "the daemons have no networks of their own")
	defer w.CutBy(fleet.Drop)
	IsolateOwner(t, w)
}

// dropped counts what cuts swallowed so far.
func (w *World) dropped(t testing.TB) uint64 {
	t.Helper()
	n, err := w.Dropped()
	require.NoError(t, err)
	return n
}

// lateWriteIsFenced does what a delayed fenced batch of the old owner would do.
func lateWriteIsFenced(t testing.TB, owner *fleet.Node, epoch fsm.Epoch) {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, owner.DSN("forgeyard_app"))
	require.NoError(t, err, "the isolated daemon must still reach PostgreSQL")
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var generation int64
	require.NoError(t, conn.QueryRow(ctx, `SELECT generation FROM coordination.fence WHERE role = $1`, int16(role)).Scan(&generation))
	b := &pgx.Batch{}
	b.Queue(`SELECT coordination.fence($1, $2, $3)`, int16(role), generation, int64(epoch))
	b.Queue(`UPDATE forge.jobs SET attempt = attempt + 1`)
	var refused *pgconn.PgError
	require.ErrorAs(t, conn.SendBatch(ctx, b).Close(), &refused)
	require.Equal(t, "FY001", refused.Code, refused.Message)
}
