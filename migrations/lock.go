// The migration lock: a session lock on a connection of its own, so that it can neither be taken on one
// session and released on another nor outlive the process.

package migrations

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lockKey is the advisory lock of migrations ("FY", 2).
const lockKey int64 = 0x46590002

// LockedError says that another migrator held the lock for the whole wait.
type LockedError struct {
	Waited time.Duration
	Holder string // what PostgreSQL knows of the holding session
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("another migration has been running for longer than %s: %s", e.Waited, e.Holder)
}

type lock struct {
	conn *pgx.Conn
}

func acquire(ctx context.Context, c Config) (*lock, error) {
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	cfg, err := pgx.ParseConfig(c.Direct)
	if err != nil {
		return nil, fmt.Errorf("direct DSN: %w", err)
	}
	cfg.RuntimeParams["application_name"] = "forgeyard migrate " + c.Name
	cfg.RuntimeParams["lock_timeout"] = strconv.FormatInt(c.Wait.Milliseconds(), 10)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect for the migration lock: %w", err)
	}
	if _, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockKey); err == nil {
		return &lock{conn: conn}, nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		err = &LockedError{Waited: c.Wait, Holder: holder(ctx, conn)}
	} else {
		err = fmt.Errorf("migration lock: %w", err)
	}
	return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// holder describes the session that has the lock.
func holder(ctx context.Context, conn *pgx.Conn) string {
	var s string
	err := conn.QueryRow(ctx, `
		SELECT format('%s, backend pid %s, from %s, connected since %s', coalesce(nullif(a.application_name, ''), 'a session without a name'),
		              a.pid, coalesce(host(a.client_addr), 'this machine'), a.backend_start)
		  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		 WHERE l.locktype = 'advisory' AND l.granted AND l.classid = ($1::bigint >> 32)::integer::oid AND l.objid = $1::bigint::oid AND l.objsubid = 1
		   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, lockKey).Scan(&s)
	if errors.Is(err, pgx.ErrNoRows) {
		return "it has just ended, try again"
	}
	if err != nil {
		return "the holder could not be read: " + err.Error()
	}
	return s
}

// release unlocks and closes; an unlock that released nothing is an error,
// because then the migration ran without the lock.
func (l *lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var held bool
	err := l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", lockKey).Scan(&held)
	if err == nil && !held {
		err = errors.New("the lock was not held any more")
	}
	if err = errors.Join(err, l.conn.Close(ctx)); err != nil {
		return fmt.Errorf("release the migration lock: %w", err)
	}
	return nil
}
