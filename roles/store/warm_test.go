// A warmed session: planned, not executed, and as it was.

package store

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

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
	for range 2 { // on one session
		var left int
		var backend uint32
		require.NoError(t, s.Fenced(t.Context(), g, func(b *pgx.Batch) {
			b.Queue(`SELECT count(*), pg_backend_pid() FROM pg_prepared_statements WHERE name = $1`, warmName).QueryRow(func(row pgx.Row) error {
				return row.Scan(&left, &backend)
			})
		}))
		require.Zero(t, left)
		require.NotZero(t, backend)
	}
	s.Close() // the log is read
	require.Equal(t, 3, strings.Count(log.String(), "not planned ahead"), log.String())
}
