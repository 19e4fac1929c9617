// Unfenced work: reads, and writes of columns that no leader owns.

package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// bounded gives a context the store's deadline where it has no earlier one.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// acquire takes a connection within ctx; its errors are known not to have sent anything.
func (s *Store) acquire(ctx context.Context, p *pgxpool.Pool) (*pgxpool.Conn, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, &notSent{err}
	}
	return c, nil
}

// release gives the connection back, or destroys it when its server went
// read-only or it broke: left in the pool such a session would fail every
// write from now on while reads look healthy.
func (s *Store) release(p *pgxpool.Pool, c *pgxpool.Conn, err error) {
	if err != nil && broken(err) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		// The session is given up whether it can say goodbye or not.
		_ = c.Conn().Close(ctx)
		cancel()
		if state(err) == readOnly {
			p.Reset() // every other session is on the same demoted server
		}
	}
	c.Release()
}

// use is lend, and what it meets there tells the probe to look.
func (s *Store) use(ctx context.Context, p *pgxpool.Pool, f func(context.Context, *pgx.Conn) error) error {
	err := s.lend(ctx, p, f)
	s.doubt(err)
	return explain(err)
}

// lend runs f on a connection of p, within ctx and the store's deadline, which
// begins once there is a connection: a batch that waited for one, and is late,
// would cost its epoch. The probe calls it alone: its own failure must not make
// it look again.
func (s *Store) lend(ctx context.Context, p *pgxpool.Pool, f func(context.Context, *pgx.Conn) error) error {
	wait, enough := s.bounded(ctx)
	c, err := s.acquire(wait, p)
	enough()
	if err != nil {
		return err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err = f(ctx, c.Conn())
	s.release(p, c, err)
	return err
}

// doubt asks for a probe after an error that speaks of the server or the way to it.
func (s *Store) doubt(err error) {
	var unsent *notSent
	if err != nil && (errors.As(err, &unsent) || broken(err)) {
		s.probe.kick()
	}
}

// Exec runs one statement. Classify tells the outcome of an error.
func (s *Store) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = s.use(ctx, s.app, func(ctx context.Context, c *pgx.Conn) (err error) {
		tag, err = c.Exec(ctx, sql, args...)
		return err
	})
	return tag, err
}

// Batch runs what fill queues as one transaction and one round trip. Results
// are handed to the callbacks of the queued queries; they count only when Batch
// returns nil, for the commit's own error comes last.
func (s *Store) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	return s.batch(ctx, s.app, fill)
}

func (s *Store) batch(ctx context.Context, p *pgxpool.Pool, fill func(*pgx.Batch)) error {
	b := &pgx.Batch{}
	fill(b)
	return s.use(ctx, p, func(ctx context.Context, c *pgx.Conn) error {
		return send(ctx, c, b)
	})
}

// LeaseWork is the Store for what agents say of their leases, over connections of its own.
type LeaseWork struct{ s *Store }

// LeaseWork waits for no other work of the Store.
func (s *Store) LeaseWork() LeaseWork { return LeaseWork{s} }

// Batch is Store.Batch.
func (w LeaseWork) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	return w.s.batch(ctx, w.s.leases, fill)
}

// send runs a batch as one implicit transaction. An error that is not the
// server's (the reply was lost, or a callback failed while the statements went
// on) hides whether the commit came: it is marked unknown.
func send(ctx context.Context, c *pgx.Conn, b *pgx.Batch) error {
	err := plantedAnswer(b, c.SendBatch(ctx, b)).Close()
	var planning pgx.ErrPreprocessingBatch
	switch {
	case err == nil || state(err) != "" || pgconn.SafeToRetry(err):
		return err
	case errors.As(err, &planning): // the session was lost, or the time was over, before any of it was sent
		return &notSent{err}
	}
	return ErrUnknown.Wrap(err, "")
}

// Tx runs f in one READ COMMITTED transaction. It commits when f returns nil
// and rolls back otherwise, also when ctx has ended. Its session is part of the
// pool for unfenced work: f must not call the Store.
func (s *Store) Tx(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return s.use(ctx, s.app, func(ctx context.Context, c *pgx.Conn) error {
		tx, err := c.Begin(ctx)
		if err != nil {
			return err
		}
		defer rollback(ctx, tx) // nothing left to do after a commit
		if err := f(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// Query runs a query. The connection is busy until the rows are closed or read to their end.
func (s *Store) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := s.bounded(ctx)
	c, err := s.acquire(ctx, s.app)
	if err != nil {
		s.doubt(err)
		cancel()
		return nil, explain(err)
	}
	r, err := c.Query(ctx, sql, args...)
	if err != nil {
		s.release(s.app, c, err)
		s.doubt(err)
		cancel()
		return nil, explain(err)
	}
	return &rows{Rows: r, end: func(err error) {
		s.release(s.app, c, err)
		s.doubt(err)
		cancel()
	}}, nil
}

// QueryRow runs a query for one row; errors, pgx.ErrNoRows among them, come from Scan.
func (s *Store) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, err := s.Query(ctx, sql, args...)
	return row{rows: r, err: err}
}

// rows gives the connection back at the end of its reading.
type rows struct {
	pgx.Rows
	end func(error)
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.end(r.Rows.Err())
		r.end = nil
	}
}

func (r *rows) Err() error { return explain(r.Rows.Err()) }

type row struct {
	rows pgx.Rows
	err  error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	scanned := r.rows.Scan(dest...)
	r.rows.Close()
	return errors.Join(scanned, r.rows.Err())
}
