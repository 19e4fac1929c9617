// A warmed session: planned, not executed, and as it was.

package store

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestWarmSession(t *testing.T) {
	db := newDatabase(t)
	var log bytes.Buffer
	s := open(t, db, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.FencedConns = 1
		c.Warm = []string{
			`SELECT pg_notify('warmed', $1)`, `INSERT INTO forge.no_such_table VALUES ($1)`, `no SQL`,
			// What is folded while it is planned would end the session's transaction, not the session.
			`SELECT 1/0`,
		}
	})
	h := newHolder(t)
	g := h.fenced(t, s, 1)
	var backends [2]uint32
	for i := range backends {
		var left int
		require.NoError(t, s.Fenced(t.Context(), g, func(b *pgx.Batch) {
			b.Queue(`SELECT count(*), pg_backend_pid() FROM pg_prepared_statements WHERE name = $1`, warmName).QueryRow(func(row pgx.Row) error {
				return row.Scan(&left, &backends[i])
			})
		}))
		require.Zero(t, left)
	}
	require.NotZero(t, backends[0])
	require.Equal(t, backends[0], backends[1], "the session was of use afterwards")
	s.Close() // the log is read
	refused := strings.Count(log.String(), "not planned ahead")
	require.GreaterOrEqual(t, refused, 3, log.String())
	require.Zero(t, refused%3, "three in each session that was begun: %s", log.String())
}

// A migration holds the tables for as long as it likes: a session whose warming
// meets its locks is used as it is, and is as it was.
func TestWarmingWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	migration := session(t, db.Super)
	_, err := migration.Exec(t.Context(), "BEGIN; LOCK TABLE work")
	require.NoError(t, err)
	s := open(t, db, func(c *Config) {
		c.FencedConns, c.Timeout = 1, beginTimeout
		for i := range int(beginTimeout / planLock) { // each waits for the lock as long as it may
			c.Warm = append(c.Warm, fmt.Sprintf("INSERT INTO work (note) VALUES ('%d')", i))
		}
	})
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.use(short, s.fenced, ping), ErrUnavailable, "the session is being warmed")
	var warmed uint32
	require.Eventually(t, func() bool {
		return session(t, db.Super).QueryRow(t.Context(),
			"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'forgeyard test fenced' AND wait_event_type = 'Lock'").Scan(&warmed) == nil
	}, waitBound, pollEvery)
	for range 2 {
		var pid uint32
		var statement, lock, plans, scans string
		require.NoError(t, s.use(t.Context(), s.fenced, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT pg_backend_pid(), current_setting('statement_timeout'), current_setting('lock_timeout'),
				current_setting('plan_cache_mode'), current_setting('enable_seqscan')`).Scan(&pid, &statement, &lock, &plans, &scans)
		}))
		require.Equal(t, warmed, pid, "the session was thrown away")
		require.Equal(t, []string{"10s", (s.cfg.Timeout * 4 / 5).String(), "auto", "off"}, []string{statement, lock, plans, scans})
	}
}
