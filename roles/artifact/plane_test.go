// A real database with leases in it, under the logs and the collection.

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

const agent = "agent-1"

type plane struct {
	*testing.T
	db    *store.Store
	super *pgx.Conn
	made  *atomic.Int64
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{T: t, made: new(atomic.Int64)}
	d := pgtest.New(t)
	var err error
	p.db, err = store.Open(t.Context(), store.Config{App: d.App, Direct: d.Direct, Owner: d.Owner, Cluster: cluster.NewClusterID()})
	require.NoError(t, err)
	t.Cleanup(p.db.Close)
	require.NoError(t, p.db.Migrate(t.Context()))
	p.super, err = pgx.Connect(t.Context(), d.Super)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.super.Close(context.Background())) })
	p.exec(`SELECT coordination.raise_fence(1::smallint, 1, 7, 'node', 'process')`)
	p.exec(`INSERT INTO forge.agents (id, session, slots) VALUES ($1, 's', 1)`, agent)
	return p
}

// in is the plane as a subtest sees it.
func (p *plane) in(t *testing.T) *plane {
	sub := *p
	sub.T = t
	return &sub
}

func (p *plane) exec(sql string, args ...any) {
	p.Helper()
	_, err := p.super.Exec(p.Context(), sql, args...)
	require.NoError(p, err)
}

// fenced runs SQL as the scheduler would.
func (p *plane) fenced(sql string, args ...any) {
	p.Helper()
	b := &pgx.Batch{}
	b.Queue(`SELECT coordination.fence(1::smallint, 1, 7)`)
	b.Queue(sql, args...)
	require.NoError(p, p.super.SendBatch(p.Context(), b).Close())
}

// run makes a run with one leased job; source may be nil. It returns the lease.
func (p *plane) run(source *Digest) string {
	p.Helper()
	n := p.made.Add(1)
	run, job := fmt.Sprintf("%026d", n), fmt.Sprintf("J%025d", n)
	var bytes []byte
	if source != nil {
		bytes = source.Bytes()
	}
	p.exec(`INSERT INTO forge.runs (id, name, request_digest, source) VALUES ($1, 'run', decode(repeat('00', 32), 'hex'), $2)`, run, bytes)
	p.exec(`INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms) VALUES ($1, $2, 'job', '[{"name": "s", "argv": ["true"]}]', 1000)`, job, run)
	p.fenced(`INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) VALUES ($1, 1, $2, coordination.clock() + interval '60 s')`, job, agent)
	var lease string
	require.NoError(p, p.super.QueryRow(p.Context(), `SELECT id::text FROM forge.leases WHERE job_id = $1`, job).Scan(&lease))
	return lease
}

// artifact records an output of a lease.
func (p *plane) artifact(lease, name string, d Digest) {
	p.Helper()
	p.exec(`INSERT INTO forge.artifacts (lease_id, name, run_id, job_id, path, digest, size)
		SELECT l.id, $2, j.run_id, j.id, 'out', $3, 1 FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.id = $1::text::uuid`, lease, name, d.Bytes())
}

func (p *plane) logs(s Store, db Database) *Logs {
	p.Helper()
	l, err := NewLogs(s, db)
	require.NoError(p, err)
	p.Cleanup(l.Close)
	return l
}

// flaky is a store that is sometimes down.
type flaky struct {
	Store
	down atomic.Bool
}

func (f *flaky) check() error {
	if f.down.Load() {
		return ErrUnavailable.Wrap(errors.New("cut"), "")
	}
	return nil
}

func (f *flaky) Put(ctx context.Context, r io.Reader, w Want) (Blob, error) {
	if err := f.check(); err != nil {
		return Blob{}, err
	}
	return f.Store.Put(ctx, r, w)
}

func (f *flaky) Get(ctx context.Context, d Digest) (io.ReadCloser, int64, error) {
	if err := f.check(); err != nil {
		return nil, 0, err
	}
	return f.Store.Get(ctx, d)
}

// losing is a database whose next answer is lost after the commit.
type losing struct {
	Database
	lose atomic.Bool
}

func (l *losing) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	err := l.Database.Batch(ctx, fill)
	if err == nil && l.lose.CompareAndSwap(true, false) {
		return store.ErrUnknown
	}
	return err
}

// TestDigestsAreLookedUp: neither a sweep nor anything else reads a whole table to learn whether a digest is named.
func TestDigestsAreLookedUp(t *testing.T) {
	p := newPlane(t)
	p.exec(`SET enable_seqscan = off`) // as the sessions of daemons have it
	rows, err := p.super.Query(t.Context(), `EXPLAIN `+unreferencedSQL, [][]byte{make([]byte, 32)})
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	text := strings.Join(plan, "\n")
	for _, index := range []string{"runs_source", "artifacts_digest", "log_chunks_digest"} {
		require.Contains(t, text, index)
	}
	require.NotContains(t, text, "Seq Scan")
}
