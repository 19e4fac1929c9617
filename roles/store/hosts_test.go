// DSNs with two hosts: how long each is waited for, and that a slow one is reached in the end.

package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestPatience(t *testing.T) {
	cfg, err := pgxpool.ParseConfig("host=a,b port=1")
	require.NoError(t, err)
	require.True(t, several(cfg.ConnConfig))
	var standby error
	cfg.ConnConfig.ValidateConnect = func(context.Context, *pgconn.PgConn) error { return standby }
	(&patience{}).of(cfg)
	attempt := func() time.Duration {
		c := cfg.ConnConfig.Copy()
		require.NoError(t, cfg.BeforeConnect(t.Context(), c))
		return c.ConnectTimeout
	}
	session := func() error { return cfg.ConnConfig.ValidateConnect(t.Context(), nil) }
	require.Equal(t, connectTimeout, attempt(), "a paused host is passed over")
	require.Equal(t, beginTimeout, attempt(), "another attempt, while the first one has brought nothing")
	standby = errors.New("read-only")
	require.ErrorIs(t, session(), standby)
	require.Equal(t, beginTimeout, attempt(), "a standby is no session")
	standby = nil
	require.NoError(t, session())
	require.Equal(t, connectTimeout, attempt())

	one, err := pgxpool.ParseConfig("host=a port=1 sslmode=prefer")
	require.NoError(t, err)
	require.False(t, several(one.ConnConfig), "with and without TLS it is the same host")
}

// Of two hosts the one that is writable begins its sessions later than one attempt waits for it.
func TestSlowHostAmongSeveral(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	p := newCutter(t, db)
	p.slow.Store(int64(connectTimeout + time.Second/2))
	s := open(t, db, func(c *Config) {
		c.App = fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=1,%d user=forgeyard_app dbname=%s sslmode=disable", p.addr.Port, db.Name)
		c.Direct, c.MaxConns, c.FencedConns = db.Direct, 1, 1
		c.Timeout = 2 * beginTimeout // a statement that is cut off would cost the session
	})
	require.Eventually(t, func() bool {
		_, err := s.Exec(t.Context(), "SELECT 1")
		return err == nil
	}, 5*beginTimeout, pollEvery)
}
