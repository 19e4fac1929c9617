// The peer: River, with no-op workers and its shortest fetch cooldown.

package peers

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/postgres"
)

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type worker struct {
	river.WorkerDefaults[nothing]
}

func (worker) Work(context.Context, *river.Job[nothing]) error { return nil }

// rivers is a River client on a database of its own on the server.
type rivers struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// newRiver migrates a database and makes a client whose workers may run so many jobs at a time.
func newRiver(b *testing.B, srv *postgres.Server, db string, workers int) *rivers {
	b.Helper()
	require.NoError(b, srv.Bootstrap(b.Context(), db))
	cfg, err := pgxpool.ParseConfig(srv.DSN(postgres.Superuser, db))
	require.NoError(b, err)
	cfg.MaxConns = 16
	r := &rivers{}
	r.pool, err = pgxpool.NewWithConfig(b.Context(), cfg)
	require.NoError(b, err)
	b.Cleanup(r.pool.Close)
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, nil)
	require.NoError(b, err)
	_, err = migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(b, err)
	known := river.NewWorkers()
	river.AddWorker(known, worker{})
	r.client, err = river.NewClient(driver, &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:       known,
		FetchCooldown: time.Millisecond,
		Logger:        slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	return r
}

// insert adds n jobs in one InsertMany.
func (r *rivers) insert(b *testing.B, n int) {
	b.Helper()
	all := make([]river.InsertManyParams, n)
	for i := range all {
		all[i] = river.InsertManyParams{Args: nothing{}}
	}
	_, err := r.client.InsertMany(b.Context(), all)
	require.NoError(b, err)
}

// tidy leaves to no round what the one before it has left.
func (r *rivers) tidy(b *testing.B) {
	_, err := r.pool.Exec(b.Context(), `VACUUM (ANALYZE)`)
	require.NoError(b, err)
}

// drain works off what is queued and returns how long that took, from the start of the client to the last completion.
// The question costs one look into the index that River fetches by.
func (r *rivers) drain(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	require.NoError(b, r.client.Start(b.Context()))
	waitFor(b, func() bool {
		var left int
		require.NoError(b, r.pool.QueryRow(b.Context(), `SELECT count(*) FROM (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending') LIMIT 1) x`).Scan(&left))
		return left == 0
	})
	took := time.Since(began)
	require.NoError(b, r.client.Stop(context.WithoutCancel(b.Context())))
	return took
}

// waitFor asks every few milliseconds.
func waitFor(b *testing.B, done func() bool) {
	b.Helper()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !done() {
		select {
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		case <-t.C:
		}
	}
}
