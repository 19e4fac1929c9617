// The executable spec of a guard against the real database: which (generation, epoch, owner) may do what.

package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// The fence stands at generation 2, epoch 7, owner a. Everyone else is refused,
// whatever it is that differs, and leaves nothing behind.
func TestFenceEqualityOnly(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	holder := at(7, "a")
	holder.generation = 2
	require.NoError(t, s.raise(t.Context(), holder))

	with := func(change func(*authority)) authority {
		a := holder
		change(&a)
		return a
	}
	for name, a := range map[string]authority{
		"stale epoch":                   with(func(a *authority) { a.epoch = 6 }),
		"future epoch":                  with(func(a *authority) { a.epoch = 8 }),
		"zero epoch":                    with(func(a *authority) { a.epoch = 0 }),
		"older generation":              with(func(a *authority) { a.generation = 1 }),
		"newer generation":              with(func(a *authority) { a.generation = 3 }),
		"older generation, later epoch": with(func(a *authority) { a.generation, a.epoch = 1, 100 }),
		"role never raised":             with(func(a *authority) { a.role = 2 }),
		"zero authority":                {},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.sendFenced(t.Context(), s.fenced, a, still, insert(name))
			require.ErrorIs(t, err, cluster.ErrFenced)
			require.Equal(t, cluster.Fenced, cluster.KindOf(err))
			require.Equal(t, Lost, Classify(err))
			require.Zero(t, one[int](t, db, "SELECT count(*) FROM work WHERE note = $1", name))
		})
	}
	require.NoError(t, s.sendFenced(t.Context(), s.fenced, holder, still, insert("holder")))
	require.EqualValues(t, 7, one[int64](t, db, "SELECT epoch FROM work WHERE note = 'holder'"), "the row's epoch is the fence's")
}

// Who may raise the fence, and to what (§28): rows run in this order on one fence.
func TestFenceRaiseMonotonic(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	next := func(generation, epoch int64, owner, incarnation string) authority {
		return authority{role: 1, generation: generation, epoch: epoch, owner: owner, incarnation: incarnation}
	}
	for _, step := range []struct {
		name  string
		who   authority
		state string // SQLSTATE, "" = raised
	}{
		{"zero epoch", next(1, 0, "a", "a1"), "FY003"},
		{"first", next(1, 5, "a", "a1"), ""},
		{"again, as after a lost reply", next(1, 5, "a", "a1"), ""},
		{"same epoch, restarted process", next(1, 5, "a", "a2"), "FY003"},
		{"same epoch, other node", next(1, 5, "b", "a1"), "FY003"},
		{"lower epoch", next(1, 4, "b", "b1"), "FY003"},
		{"later epoch of the other node", next(1, 9, "b", "b1"), ""},
		{"the first owner comes back", next(1, 5, "a", "a1"), "FY003"},
		{"generation zero", next(0, 10, "a", "a1"), "FY001"},
		{"a later generation starts its epochs anew", next(2, 1, "a", "a3"), ""},
		{"the older generation's higher epoch", next(1, 10, "b", "b1"), "FY001"},
	} {
		err := s.raise(t.Context(), step.who)
		require.Equal(t, step.state, state(err), "%s: %v", step.name, err)
	}
	require.Equal(t, "2/1/a/a3", one[string](t, db, "SELECT concat_ws('/', generation, epoch, owner, incarnation) FROM coordination.fence"))
}

func TestFenceRefusesOtherIsolation(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(1, "a")))
	c := session(t, db.App)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for _, sql := range []string{"SELECT coordination.fence(1::smallint, 1, 1)", "SELECT coordination.raise_fence(1::smallint, 1, 2, 'b', 'b')"} {
			tx, err := c.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			require.Equal(t, "FY005", state(err))
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}

// A database that was promoted or restored is on another history: the operator
// decides by raising the generation.
func TestFenceOnAnotherHistory(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	require.NoError(t, s.raise(t.Context(), at(3, "a")))
	super := session(t, db.Super)
	for _, change := range []string{"system_identifier = 1", "timeline = timeline + 1"} {
		_, err := super.Exec(t.Context(), "UPDATE coordination.fence SET "+change)
		require.NoError(t, err)
		next := at(4, "a")
		next.generation = one[int64](t, db, "SELECT generation FROM coordination.fence")
		err = s.raise(t.Context(), next)
		require.ErrorIs(t, err, ErrDatabaseHistory)
		require.False(t, Retryable(err))
		next.generation, next.epoch = next.generation+1, 1
		require.NoError(t, s.raise(t.Context(), next), "a new generation accepts the history")
	}
	_, err := super.Exec(t.Context(), "UPDATE coordination.cluster SET system_identifier = 1")
	require.NoError(t, err)
	never := at(1, "a")
	never.role = 3
	require.ErrorIs(t, s.raise(t.Context(), never), ErrDatabaseHistory, "also for a role that was never raised here")
}

// A guard's whole way: no write before the fence, writes under it, and one
// FENCED ends it for every copy.
func TestEveryGuardedMutationFenced(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	h := newHolder(t)

	mutations := map[string]func(cluster.RoleGuard) error{
		"Fenced":      func(g cluster.RoleGuard) error { return s.Fenced(t.Context(), g, insert("row")) },
		"AssertFence": func(g cluster.RoleGuard) error { return s.AssertFence(t.Context(), g) },
	}
	require.ErrorIs(t, s.RaiseFence(t.Context(), cluster.RoleGuard{}), cluster.ErrFenced, "the zero guard raises nothing")
	for name, mutate := range mutations {
		require.ErrorIs(t, mutate(cluster.RoleGuard{}), cluster.ErrFenced, "%s takes the zero guard", name)
	}
	g := h.granted(t, 5)
	for name, mutate := range mutations {
		require.ErrorIs(t, mutate(g), cluster.ErrFenced, "%s before the fence is raised", name)
	}
	require.NoError(t, g.CheckGranted(), "being too early loses nothing")

	g = h.fenced(t, s, 5)
	for name, mutate := range mutations {
		require.NoError(t, mutate(g), name)
	}
	require.Equal(t, 1, one[int](t, db, "SELECT count(*) FROM work WHERE epoch = 5"))

	// Another process takes over; this one has not heard of it.
	for name, mutate := range mutations {
		epoch := int64(g.Epoch())
		require.NoError(t, s.raise(t.Context(), at(epoch+1, "other")))
		copied := g
		require.NoError(t, g.Check())
		err := mutate(g)
		require.ErrorIs(t, err, cluster.ErrFenced, name)
		require.Equal(t, Lost, Classify(err))
		require.Equal(t, cluster.GuardRevoked, copied.State(), "%s: revoked before it returned, in every copy", name)
		require.Error(t, copied.Context().Err())
		g = h.fenced(t, s, g.Epoch()+10)
	}
	require.Equal(t, 1, one[int](t, db, "SELECT count(*) FROM work"))
}

// The commit's own error appears last; nothing is true before it.
func TestAckOnlyAfterCommit(t *testing.T) {
	db := newDatabase(t)
	_, err := session(t, db.Super).Exec(t.Context(), `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED); GRANT INSERT, SELECT ON late TO forgeyard_app`)
	require.NoError(t, err)
	s := open(t, db)
	g := newHolder(t).fenced(t, s, 1)
	statements := 0
	err = s.Fenced(t.Context(), g, func(b *pgx.Batch) {
		for range 2 {
			b.Queue("INSERT INTO late VALUES (1) RETURNING id").QueryRow(func(r pgx.Row) error {
				statements++
				return r.Scan(nil)
			})
		}
	})
	require.Equal(t, 2, statements, "both statements answered well")
	require.Equal(t, "23505", state(err), "and the commit did not")
	require.Equal(t, NotApplied, Classify(err))
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM late"))
	require.NoError(t, g.Check(), "an ordinary error costs no epoch")
	require.NoError(t, s.Fenced(t.Context(), g, insert("next")), "and the session is usable")
}

// locked holds the table of work until its transaction ends.
func locked(t *testing.T, db *pgtest.Database) pgx.Tx {
	t.Helper()
	tx, err := session(t, db.Super).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE work IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	return tx
}

// A batch whose statements could not be planned was never sent: that costs no epoch,
// though its time was over while the server waited for a lock.
func TestUnplannedBatchIsNotApplied(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	g := newHolder(t).fenced(t, s, 1)
	tx := locked(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := s.Fenced(ctx, g, func(b *pgx.Batch) { b.Queue("INSERT INTO work (note) VALUES ('unplanned') RETURNING id") })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, NotApplied, Classify(err))
	require.NoError(t, g.Check())
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, s.Fenced(t.Context(), g, insert("after")))
	require.Equal(t, "after", one[string](t, db, "SELECT string_agg(note, ',') FROM work"))
}

// Somebody holds a table for longer than a batch has time: the server says so before
// the time is over, also to the batch that waited for the session of another one
// first, and the epoch goes on.
func TestLockedTableCostsNoEpoch(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.FencedConns, c.Timeout = 1, 2*time.Second })
	g := newHolder(t).fenced(t, s, 1)
	require.NoError(t, s.Fenced(t.Context(), g, insert("before"))) // its statements are planned
	tx := locked(t, db)
	both := make(chan error, 2)
	for range cap(both) {
		go func() { both <- s.Fenced(t.Context(), g, insert("meanwhile")) }()
	}
	for range cap(both) {
		err := <-both
		require.Equal(t, "55P03", state(err), "%v", err)
		require.Equal(t, NotApplied, Classify(err))
	}
	require.NoError(t, g.Check())
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, s.Fenced(t.Context(), g, insert("after")))
	require.Equal(t, "before,after", one[string](t, db, "SELECT string_agg(note, ',' ORDER BY note DESC) FROM work"))
}

// A callback's own error hides the commit's answer.
func TestCallbackErrorIsUnknown(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	g := newHolder(t).fenced(t, s, 1)
	err := s.Fenced(t.Context(), g, func(b *pgx.Batch) {
		b.Queue("INSERT INTO work (note) VALUES ('there')")
		b.Queue("SELECT 1 WHERE false").QueryRow(func(r pgx.Row) error { return r.Scan(nil) })
	})
	require.ErrorIs(t, err, pgx.ErrNoRows)
	require.Equal(t, Unknown, Classify(err))
	require.True(t, cluster.OutcomeUnknown(err))
	require.Equal(t, cluster.GuardRevoked, g.State())
	require.Equal(t, 1, one[int](t, db, "SELECT count(*) FROM work"), "it did commit")

	boom := errors.New("boom")
	err = s.Batch(t.Context(), func(b *pgx.Batch) {
		b.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return boom })
	})
	require.ErrorIs(t, err, boom)
	require.Equal(t, Unknown, Classify(err))
}
