// Databases that must be refused, each with its code and untouched.

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/migrations"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

func TestWrongDatabase(t *testing.T) {
	ours, theirs := cluster.NewClusterID(), cluster.NewClusterID()
	for name, c := range map[string]struct {
		prepare string // by a superuser, in the database
		change  func(*Config, *pgtest.Database)
		migrate *cluster.Error // of Migrate; nil = succeeds
		use     *cluster.Error // of a query; nil = succeeds
	}{
		"ours":                 {},
		"another cluster's":    {prepare: "SELECT coordination.claim('" + theirs.String() + "')", migrate: ErrOtherCluster, use: ErrOtherCluster},
		"schema too new":       {prepare: "INSERT INTO coordination.schema_version (version_id, is_applied) VALUES (9999, true)", migrate: ErrNewerSchema, use: ErrNotMigrated},
		"app DSN is the owner": {change: func(c *Config, db *pgtest.Database) { c.App = db.Owner }, use: ErrAppPrivileges},
		"app DSN is superuser": {change: func(c *Config, db *pgtest.Database) { c.App = db.Super }, use: ErrAppPrivileges},
		"no such database": {change: func(c *Config, db *pgtest.Database) {
			c.App = postgres.DSN(db.Host, db.Port, "forgeyard_app", "missing")
		}, use: ErrDSN},
		"no such user": {change: func(c *Config, db *pgtest.Database) { c.App = postgres.DSN(db.Host, db.Port, "nobody", db.Name) }, use: ErrDSN},
		"owner's database gone": {change: func(c *Config, db *pgtest.Database) {
			c.Owner = postgres.DSN(db.Host, db.Port, "forgeyard_owner", "missing")
		}, migrate: ErrDSN, use: ErrNotMigrated},
		"app DSN names a foreign database": {
			change: func(c *Config, db *pgtest.Database) {
				c.App = postgres.DSN(db.Host, db.Port, "forgeyard_app", "postgres")
			}, use: ErrNotMigrated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			if c.prepare != "" {
				_, err := session(t, db.Super).Exec(t.Context(), c.prepare)
				require.NoError(t, err)
			}
			before := contents(t, db)
			cfg := Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: ours}
			if c.change != nil {
				c.change(&cfg, db)
			}
			s, err := Open(t.Context(), cfg)
			require.NoError(t, err)
			defer s.Close()
			is(t, c.migrate, s.Migrate(t.Context()))
			_, err = s.Exec(t.Context(), "SELECT 1")
			is(t, c.use, err)
			if c.migrate != nil {
				require.Equal(t, before, contents(t, db), "a refused database is not touched")
			}
		})
	}
}

func is(t *testing.T, want *cluster.Error, err error) {
	t.Helper()
	if want == nil {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, want)
	require.NotEqual(t, cluster.Internal, cluster.KindOf(err))
}

// contents describes whose the database is and which schema it has.
func contents(t *testing.T, db *pgtest.Database) string {
	t.Helper()
	return one[string](t, db, `SELECT concat_ws(' ', (SELECT string_agg(cluster_id, ',') FROM coordination.cluster),
		(SELECT string_agg(version_id::text, ',' ORDER BY id) FROM coordination.schema_version),
		(SELECT count(*) FROM pg_class))`)
}

// An empty database is refused until it was migrated; two nodes that start at once both succeed.
func TestMigrateTogether(t *testing.T) {
	db := pgtest.NewEmpty(t)
	id := cluster.NewClusterID()
	var stores []*Store
	for range 3 {
		s, err := Open(t.Context(), Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: id})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		_, err = s.Exec(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, ErrNotMigrated)
		stores = append(stores, s)
	}
	var nodes sync.WaitGroup
	for _, s := range stores {
		nodes.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Error(err)
			}
		})
	}
	nodes.Wait()
}

func TestMigrationErrorsHaveCodes(t *testing.T) {
	err := explainMigration(fmt.Errorf("wrapped: %w", &migrations.LockedError{Waited: time.Second, Holder: "the other daemon"}))
	require.ErrorIs(t, err, ErrMigrationLocked)
	require.ErrorContains(t, err, "the other daemon")
	err = explainMigration(&migrations.NewerSchemaError{Database: 9, Binary: 2})
	require.ErrorIs(t, err, ErrNewerSchema)
	require.Equal(t, cluster.IncompatibleVersion, cluster.KindOf(err))
}

func TestPgConnectionTransactionPoolerIsRefused(t *testing.T) {
	db := newDatabase(t)
	direct := open(t, db)
	for name, c := range map[string]struct {
		swap bool
		want *cluster.Error
	}{
		"transaction pooler": {swap: true, want: ErrPooler},
		"plain proxy":        {swap: false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPooler(t, db, c.swap)
			s, err := Open(t.Context(), Config{App: p, Direct: db.Direct, Cluster: direct.cfg.Cluster})
			require.NoError(t, err)
			defer s.Close()
			_, err = s.Exec(t.Context(), "SELECT 1", pgx.QueryExecModeExec)
			is(t, c.want, err)
		})
	}
}

// newPooler is a proxy that, like a pooler, gives each client an id of its own;
// with swap it also changes the backend after each transaction.
func newPooler(t *testing.T, db *pgtest.Database, swap bool) (dsn string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clients.Go(func() { _ = serveClient(c, filepath.Join(db.Host, ".s.PGSQL.5432"), swap) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		clients.Wait()
	})
	return postgres.DSN("127.0.0.1", l.Addr().(*net.TCPAddr).Port, "forgeyard_app", db.Name)
}

func serveClient(conn net.Conn, socket string, swap bool) error {
	defer conn.Close()
	client := pgproto3.NewBackend(conn, conn)
	startup, err := client.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	var backends []*pgproto3.Frontend
	for i := range 2 {
		server, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer server.Close()
		b := pgproto3.NewFrontend(server, server)
		b.Send(startup)
		if err := errors.Join(b.Flush(), relay(client, b, i == 0)); err != nil {
			return err
		}
		backends = append(backends, b)
	}
	for turn := 0; ; {
		b := backends[turn%2]
		for synced := false; !synced; {
			msg, err := client.Receive()
			if err != nil {
				return err
			}
			b.Send(msg)
			switch msg.(type) {
			case *pgproto3.Sync, *pgproto3.Query:
				synced = true
			case *pgproto3.Terminate:
				return b.Flush()
			}
		}
		if err := errors.Join(b.Flush(), relay(client, b, true)); err != nil {
			return err
		}
		if swap {
			turn++
		}
	}
}

// relay passes answers on until the server is ready again.
func relay(client *pgproto3.Backend, b *pgproto3.Frontend, pass bool) error {
	for {
		msg, err := b.Receive()
		if err != nil {
			return err
		}
		if key, ok := msg.(*pgproto3.BackendKeyData); ok {
			key.ProcessID = 42
		}
		if pass {
			client.Send(msg)
		}
		if _, ok := msg.(*pgproto3.ReadyForQuery); ok {
			return client.Flush()
		}
	}
}

// A server whose default isolation level would break the fence does not decide it.
func TestSessionsAreReadCommitted(t *testing.T) {
	db := newDatabase(t)
	_, err := session(t, db.Super).Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{db.Name}.Sanitize()+" SET default_transaction_isolation = 'serializable'")
	require.NoError(t, err)
	s := open(t, db)
	g := newHolder(t).fenced(t, s, 1)
	require.NoError(t, s.Fenced(context.WithoutCancel(t.Context()), g, insert("row")))
}
