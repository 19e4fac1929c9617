// A killed daemon: from that instant it reaches neither PostgreSQL nor a client, though it takes a while to end here.

package bubble

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestKilledDaemonCommitsNothing(t *testing.T) {
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 5)
		owner, before := f.ActiveAbove(role, 0, f.Nodes...)
		c, err := pgx.Connect(t.Context(), db.Super)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		// The sleep is the server's: it takes real time, and no virtual one.
		sessions := func() (count int) {
			require.NoError(t, c.QueryRow(t.Context(), `SELECT count(*) FROM pg_sleep(0.01), pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'forgeyard ' || $1 || ' %'`, owner.Name).Scan(&count))
			return count
		}
		require.NotZero(t, sessions())

		owner.Kill()
		for tries := 0; sessions() > 0; tries++ {
			require.Less(t, tries, 3000, "its sessions live on")
		}
		require.False(t, owner.Gone(), "it ended before anything could be seen")
		require.Error(t, owner.call(http.MethodPost, "/v1/runs", run("unheard", 1), nil), "it accepts work")
		f.ActiveAbove(role, before, f.except(owner)...)
		require.Zero(t, sessions())
		require.NoError(t, owner.Start(daemon.Start{}))
		f.submit(owner, run("heard", 1))
	})
}
