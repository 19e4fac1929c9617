// Several hosts in one DSN: one that is paused is passed over, one that is slow is waited for.

package store

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// several reports whether the DSN names more than one host.
func several(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// patience is how long the sessions of one pool wait for each of several hosts.
// Nothing tells a host that is paused from one that is slow to begin a session:
// the first must not hold up the hosts after it, the second may be the only one
// that is writable, and would never be reached by attempts that all give up
// early. So an attempt gives each host connectTimeout when the one before it
// brought a session, and beginTimeout for as long as none has: at most one
// attempt goes by in vain.
type patience struct {
	vain atomic.Bool // an attempt was begun, and no session has come since
}

// of makes the attempts of a pool follow p. It comes after ValidateConnect is set.
func (p *patience) of(cfg *pgxpool.Config) {
	// What is not the pool's, as Session, has one attempt, and its caller's deadline.
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if p.vain.Swap(true) {
			c.ConnectTimeout = beginTimeout
		}
		return nil
	}
	validate := cfg.ConnConfig.ValidateConnect
	cfg.ConnConfig.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		err := validate(ctx, c)
		if err == nil {
			p.vain.Store(false)
		}
		return err
	}
}
