// The pools: exhaustion, cancellation, and what a caller leaves behind.

package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// While every connection for unfenced work is held, fence work goes on and the
// callers that get none return by their deadline.
func TestExhaustedPoolLeavesFenceAndLeaseWorkAlone(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.MaxConns = 2; c.Timeout = 500 * time.Millisecond })
	h := newHolder(t)
	g := h.fenced(t, s, 1)

	var holders sync.WaitGroup
	held, release := make(chan struct{}, 2), make(chan struct{})
	for range 2 {
		holders.Go(func() {
			rows, err := s.Query(context.WithoutCancel(t.Context()), "SELECT 1")
			if err == nil {
				held <- struct{}{}
				<-release
				rows.Close()
			}
		})
	}
	<-held
	<-held
	start := time.Now()
	_, err := s.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, NotApplied, Classify(err))
	require.Less(t, time.Since(start), 5*500*time.Millisecond)

	require.NoError(t, s.AssertFence(t.Context(), g))
	require.NoError(t, s.Fenced(t.Context(), g, insert("led on")))
	g = h.granted(t, 2)
	require.NoError(t, s.RaiseFence(t.Context(), g))
	ok, _ := s.Writable()
	require.True(t, ok)
	one := 0
	require.NoError(t, s.LeaseWork().Batch(t.Context(), func(b *pgx.Batch) {
		b.Queue("SELECT 1").QueryRow(func(row pgx.Row) error { return row.Scan(&one) })
	}), "nor does a heartbeat wait")
	require.Equal(t, 1, one)

	close(release)
	holders.Wait()
	_, err = s.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
}

// A server that begins a session slower than any caller waits is not asked for
// ever more of them: what was begun is used once it is there.
func TestSlowServerIsNotFlooded(t *testing.T) {
	db := newDatabase(t)
	p := newCutter(t, db)
	p.slow.Store(int64(connectTimeout + time.Second))
	const most = 3
	s := open(t, db, func(c *Config) {
		c.App, c.Direct = p.dsn(db, "forgeyard_app"), db.Direct
		c.MaxConns, c.FencedConns, c.Timeout = most-1, 1, 500*time.Millisecond
	})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			var err error
			for range 40 {
				if _, err = s.Exec(t.Context(), "SELECT 1"); !errors.Is(err, ErrUnavailable) {
					break
				}
			}
			if err != nil {
				t.Errorf("a caller got no session in the end: %v", err)
			}
		})
	}
	callers.Wait()
	// A statement that a busy machine cuts off costs its connection; a flood would be one for each of 640 tries.
	require.LessOrEqual(t, p.conns.Load(), int32(2*most), "connections that were opened")
}

// Requests that are cancelled in the middle of a transaction leak neither a
// connection nor a running query.
func TestPgLocksTxCancelledRequestsLeakNothing(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.MaxConns = 10 })
	var requests sync.WaitGroup
	for range 50 {
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := s.Tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO work (epoch, note) VALUES (0, 'cancelled')"); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
				return err
			})
			if err == nil {
				t.Error("a cancelled request succeeded")
			}
		})
	}
	requests.Wait()
	require.Eventually(t, func() bool { return s.app.Stat().AcquiredConns() == 0 }, waitBound, pollEvery)
	require.Eventually(t, func() bool {
		return one[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'forgeyard_app' AND state <> 'idle'") == 0
	}, waitBound, pollEvery)
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work"))
	_, err := s.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
}

// A guard that is revoked ends the fenced call that is under way.
func TestRevokedGuardEndsTheCall(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.Timeout = time.Minute })
	h := newHolder(t)
	g := h.fenced(t, s, 1)
	done := make(chan error, 1)
	go func() {
		done <- s.Fenced(t.Context(), g, func(b *pgx.Batch) { b.Queue("SELECT pg_sleep(60)") })
	}()
	require.Eventually(t, func() bool {
		return one[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
	}, waitBound, pollEvery)
	h.vacate()
	err := <-done
	require.Equal(t, Unknown, Classify(err), "%v", err)
	require.ErrorIs(t, err, context.Canceled, "ended by the revocation, not by its deadline")
}

func TestRowsGiveTheirConnectionBack(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db, func(c *Config) { c.MaxConns = 1 })
	ctx := t.Context()
	for range 3 {
		var n int
		require.NoError(t, s.QueryRow(ctx, "SELECT 7").Scan(&n))
		require.Equal(t, 7, n)
		require.ErrorIs(t, s.QueryRow(ctx, "SELECT 7 WHERE false").Scan(&n), pgx.ErrNoRows)
		require.Error(t, s.QueryRow(ctx, "SELECT 'text'").Scan(&n))
		require.Equal(t, "22012", state(s.QueryRow(ctx, "SELECT 1/0").Scan(&n)))
		require.Equal(t, "42601", state(s.QueryRow(ctx, "SELEC").Scan(&n)))
		r, err := s.Query(ctx, "SELECT * FROM generate_series(1, 3)")
		require.NoError(t, err)
		all, err := pgx.CollectRows(r, pgx.RowTo[int])
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3}, all)
		r, err = s.Query(ctx, "SELECT * FROM generate_series(1, 3)")
		require.NoError(t, err)
		require.True(t, r.Next())
		r.Close() // not read to its end
		r.Close()
		boom := errors.New("boom")
		require.ErrorIs(t, s.Tx(ctx, func(context.Context, pgx.Tx) error { return boom }), boom)
	}
	require.Zero(t, s.app.Stat().AcquiredConns())
}

func TestBatchIsOneTransaction(t *testing.T) {
	db := newDatabase(t)
	s := open(t, db)
	err := s.Batch(t.Context(), func(b *pgx.Batch) {
		b.Queue("INSERT INTO work (epoch, note) VALUES (0, 'first')")
		b.Queue("INSERT INTO work (epoch, note) VALUES (0, 1/0)")
	})
	require.Equal(t, "22012", state(err))
	require.Zero(t, one[int](t, db, "SELECT count(*) FROM work"))
	require.NoError(t, s.Tx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO work (epoch, note) VALUES (0, 'first')")
		return err
	}))
	require.Equal(t, 1, one[int](t, db, "SELECT count(*) FROM work"))
}
