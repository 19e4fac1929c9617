// Databases of tests: separate, migrated, dropped with their sessions, and their clock.

package pgtest_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(t.Context()) })
	return c
}

func TestDatabasesAreSeparateAndMigrated(t *testing.T) {
	pgtest.New(t) // makes the template
	start := time.Now()
	a := pgtest.New(t)
	t.Logf("a database took %s", time.Since(start))
	b := pgtest.New(t)
	require.NotEqual(t, a.Name, b.Name)

	ca, cb := connect(t, a.App), connect(t, b.App)
	_, err := ca.Exec(t.Context(), "INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch) VALUES (now(), '', '', '', '', '', '', 0)")
	require.NoError(t, err)
	var n int
	require.NoError(t, cb.QueryRow(t.Context(), "SELECT count(*) FROM coordination.audit").Scan(&n))
	require.Zero(t, n)
}

func TestDatabaseIsDroppedWithOpenSessions(t *testing.T) {
	var d *pgtest.Database
	t.Run("inner", func(t *testing.T) {
		d = pgtest.New(t)
		c, err := pgx.Connect(t.Context(), d.App)
		require.NoError(t, err)
		_ = c // deliberately left open
	})
	_, err := pgx.Connect(t.Context(), d.App)
	require.ErrorContains(t, err, "does not exist")
}

func TestClockShift(t *testing.T) {
	d := pgtest.New(t)
	c := connect(t, d.App)
	read := func() (at time.Time) {
		require.NoError(t, c.QueryRow(t.Context(), "SELECT coordination.clock()").Scan(&at))
		return at
	}
	require.WithinDuration(t, time.Now(), read(), time.Minute)
	require.NoError(t, d.ShiftClock(t.Context(), 90*time.Minute))
	require.WithinDuration(t, time.Now().Add(90*time.Minute), read(), time.Minute)
	require.NoError(t, d.ShiftClock(t.Context(), 0))
	require.WithinDuration(t, time.Now(), read(), time.Minute)
}
