// A session outside the pools, for what belongs to a session: LISTEN.

package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Session opens a session on the direct DSN, past any pooler, and admits it
// like those of the pools. The caller closes it; nothing here bounds its life.
func (s *Store) Session(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, s.reserved.Config().ConnConfig)
	if err != nil {
		return nil, explain(err)
	}
	if err := s.admit(ctx, c); err != nil {
		_ = c.Close(ctx) // refused: nothing was done on it
		return nil, fmt.Errorf("open a session: %w", explain(err))
	}
	return c, nil
}
