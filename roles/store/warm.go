// Warming: a session that is to carry a role's first transaction has read before what planning it needs.

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// warmName names a statement for as long as it is planned.
const warmName = "forgeyard_warm"

// warm has the server plan each statement of Config.Warm once, which fills the
// session's caches of tables, indexes and statistics: without that, the first
// transaction of a role that comes to this node takes ten times as long as the
// next one, and nobody has the role meanwhile. Nothing is executed. A statement
// that cannot be planned, as in a schema that is not migrated yet, is left out;
// an error means that the session is of no use.
func (s *Store) warm(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	for _, sql := range s.cfg.Warm {
		err := plan(ctx, c, sql)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !c.IsClosed() {
			s.cfg.Logger.Debug("a statement was not planned ahead", "err", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func plan(ctx context.Context, c *pgx.Conn, sql string) (err error) {
	statement, err := c.Prepare(ctx, warmName, sql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Deallocate(ctx, warmName)) }()
	args := ""
	if n := len(statement.ParamOIDs); n > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
	}
	_, err = c.Exec(ctx, fmt.Sprintf("EXPLAIN EXECUTE %s%s", warmName, args), pgx.QueryExecModeSimpleProtocol)
	return err
}
