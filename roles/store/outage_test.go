// A server that is demoted, silent, killed and back, under a store that stays open.

package store

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

func startServer(t *testing.T, dir string) *postgres.Server {
	t.Helper()
	srv, err := postgres.Start(t.Context(), postgres.Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitBound)
		defer cancel()
		require.NoError(t, srv.Stop(ctx))
	})
	return srv
}

func TestPgConnectionOutages(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "fypg")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	srv := startServer(t, dir)
	require.NoError(t, srv.Bootstrap(t.Context(), "forgeyard"))
	s, err := Open(t.Context(), Config{
		Owner: srv.DSN("forgeyard_owner", "forgeyard"), App: srv.DSN("forgeyard_app", "forgeyard"),
		Cluster: cluster.NewClusterID(), MaxConns: 4, Timeout: 400 * time.Millisecond, ProbeInterval: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Migrate(t.Context()))
	write := func() error {
		_, err := s.Exec(t.Context(), "INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch) VALUES (now(), '', '', '', '', '', '', 0)")
		return err
	}
	writable := func(want bool) {
		t.Helper()
		require.Eventually(t, func() bool { ok, _ := s.Writable(); return ok == want }, 30*time.Second, pollEvery)
	}
	writable(true)
	require.NoError(t, write())

	t.Run("demoted and promoted again", func(t *testing.T) {
		super, err := pgx.Connect(t.Context(), srv.DSN(postgres.Superuser, "forgeyard"))
		require.NoError(t, err)
		defer super.Close(t.Context())
		set := func(value string) {
			_, err := super.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = "+value)
			require.NoError(t, err)
			_, err = super.Exec(t.Context(), "SELECT pg_reload_conf()")
			require.NoError(t, err)
		}
		set("on")
		require.Eventually(t, func() bool { return write() != nil }, waitBound, pollEvery)
		err = write()
		require.ErrorIs(t, err, ErrReadOnly)
		require.Equal(t, NotApplied, Classify(err))
		writable(false)
		require.Zero(t, s.app.Stat().TotalConns(), "no session stays on the demoted server, where reads would still look healthy")
		set("off")
		writable(true)
		require.NoError(t, write())
	})

	t.Run("silent", func(t *testing.T) {
		require.NoError(t, srv.Pause())
		var callers sync.WaitGroup
		start := time.Now()
		for range 50 {
			callers.Go(func() {
				if write() == nil {
					t.Error("a silent server answered")
				}
			})
		}
		callers.Wait()
		require.Less(t, time.Since(start), 20*s.cfg.Timeout, "every call returns by its deadline")
		writable(false)
		require.NoError(t, srv.Resume())
		writable(true)
		require.Eventually(t, func() bool { return write() == nil }, 30*time.Second, pollEvery)
	})

	t.Run("killed and restarted", func(t *testing.T) {
		_, before := s.Writable()
		require.NoError(t, srv.Kill())
		writable(false)
		var err error
		require.Eventually(t, func() bool { err = write(); return errors.Is(err, ErrUnavailable) }, waitBound, pollEvery, "the first calls may have met sessions that were just ending")
		require.True(t, cluster.KindOf(err).Retryable())
		require.True(t, Retryable(err))
		startServer(t, dir)
		writable(true)
		require.Eventually(t, func() bool { return write() == nil }, 30*time.Second, pollEvery)
		_, after := s.Writable()
		require.Less(t, after, before+time.Hour, "the time without a break began anew")
	})
}

// Opening a store needs no server.
func TestOpenWithoutServer(t *testing.T) {
	s, err := Open(t.Context(), Config{App: "host=127.0.0.1 port=1 user=u dbname=d", Cluster: cluster.NewClusterID(), Timeout: time.Second})
	require.NoError(t, err)
	defer s.Close()
	ok, _ := s.Writable()
	require.False(t, ok)
	_, err = s.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, ErrUnavailable)
}
