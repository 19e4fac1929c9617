// Warming: a session that is to carry a role's first transaction has read before what planning it needs.

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// warmName names a statement for as long as it is planned.
const warmName = "forgeyard_warm"

// Bounds of warming. It hastens a first transaction, which must not wait for it:
// a session is used as it is once warmTime is over.
const (
	warmTime = 2 * time.Second        // after which no further statement is begun
	planTime = time.Second            // of one statement
	planLock = 100 * time.Millisecond // that one statement waits for a lock, as a migration holds
)

// warm has the server plan each statement of Config.Warm once, which fills the
// session's caches of tables, indexes and statistics: without that, the first
// transaction of a role that comes to this node takes ten times as long as the
// next one, and nobody has the role meanwhile. Nothing is executed. A statement
// that cannot be planned, or not in time, as in a schema that is not migrated
// yet or is being migrated, is left out; an error means that the session is of
// no use.
//
// It is the server that keeps the time of a statement: its refusal leaves the
// session as it is, where the end of ctx would close it, and the next session
// would fare no better. The end of ctx is for a server that is not heard any more.
func (s *Store) warm(ctx context.Context, c *pgx.Conn) error {
	if len(s.cfg.Warm) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	begun := s.cfg.Now()
	settings := fmt.Sprintf("SET statement_timeout = %s; SET lock_timeout = %s; SET plan_cache_mode = force_generic_plan", milliseconds(planTime), milliseconds(planLock))
	if _, err := c.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	for i, sql := range s.cfg.Warm {
		if s.cfg.Now().Sub(begun) >= warmTime {
			s.cfg.Logger.Debug("a session is used before all was planned", "planned", i, "of", len(s.cfg.Warm))
			break
		}
		_, err := Plan(ctx, c, sql)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !c.IsClosed() {
			s.cfg.Logger.Debug("a statement was not planned ahead", "err", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	_, err := c.Exec(ctx, "RESET ALL", pgx.QueryExecModeSimpleProtocol) // to what the session began with
	return err
}

// Plan has the server plan a statement, with a NULL for each parameter, and
// returns the lines of its EXPLAIN. Nothing is executed. The session's
// plan_cache_mode should be force_generic_plan: whatever a NULL makes false is
// not planned at all otherwise. An error is the server's or the connection's.
func Plan(ctx context.Context, c *pgx.Conn, sql string) (lines []string, err error) {
	statement, err := c.Prepare(ctx, warmName, sql)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Deallocate(ctx, warmName)) }()
	args := ""
	if n := len(statement.ParamOIDs); n > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
	}
	rows, err := c.Query(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s%s", warmName, args), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
