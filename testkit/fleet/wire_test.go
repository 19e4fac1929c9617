// A reply is lost after the commit, wholly or but for its last word, and only the one that was asked for.

package fleet

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestLosesTheReplyOfACommit(t *testing.T) {
	db := pgtest.New(t)
	p, err := listenProxy("tcp", "127.0.0.1:0", "unix", filepath.Join(db.Host, socketName), net.Dial, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", p.Addr().Port, db.Name))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	_, err = connect().Exec(t.Context(), `CREATE TABLE kept (n int CHECK (n > 0))`)
	require.NoError(t, err)
	insert := func(c *pgx.Conn, n int) (seen int, err error) {
		b := &pgx.Batch{}
		b.Queue(`SELECT 1`)
		b.Queue(`INSERT INTO kept VALUES ($1) RETURNING n`, n).QueryRow(func(row pgx.Row) error { return row.Scan(&seen) })
		return seen, c.SendBatch(t.Context(), b).Close()
	}
	count := func() (n int) {
		require.NoError(t, connect().QueryRow(t.Context(), `SELECT count(*) FROM kept`).Scan(&n))
		return n
	}

	c := connect()
	_, err = insert(c, 1)
	require.NoError(t, err)
	for i, tail := range []bool{false, true} {
		c := connect()
		_, err := insert(c, 2) // prepares the statements
		require.NoError(t, err)
		p.LoseReply(Loss{SQL: "INSERT INTO kept", Tail: tail})
		require.NoError(t, c.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)), "another reply was lost")
		_, err = insert(c, -1)
		require.ErrorContains(t, err, "kept_n_check", "a transaction that was rolled back is answered")
		require.EqualValues(t, i, p.LostReplies())
		seen, err := insert(c, 3)
		require.Error(t, err)
		require.Equal(t, tail, seen == 3, "what came before the last word")
		require.True(t, c.IsClosed())
		require.EqualValues(t, i+1, p.LostReplies())
		require.Equal(t, 1+2*(i+1), count(), "it was committed")
	}
	_, err = insert(c, 4)
	require.NoError(t, err, "one reply only")
	p.LoseReply(Loss{SQL: "INSERT INTO kept"})
	p.KeepReplies()
	_, err = insert(c, 5)
	require.NoError(t, err)
}
