// Migrations as the owner runs them: repeatable, locked, never downwards; and what the app role cannot do.

package migrations_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/migrations"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func session(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func sqlstate(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func TestUpIsRepeatableAndConcurrent(t *testing.T) {
	db := pgtest.NewEmpty(t)
	files, err := fs.Glob(migrations.Sources(), "*.sql")
	require.NoError(t, err)
	var mu sync.Mutex
	var total int
	var nodes sync.WaitGroup
	for range 4 {
		nodes.Go(func() {
			ran, err := migrations.Up(t.Context(), migrations.Config{Owner: db.Owner, Direct: db.Direct, Name: "node", Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			total += ran
			mu.Unlock()
		})
	}
	nodes.Wait()
	require.Equal(t, len(files), total, "each migration ran once")
	var locks int
	require.NoError(t, session(t, db.Super).QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&locks))
	require.Zero(t, locks)
}

func TestPgLocksTxWaiterGivesUpAndNamesTheHolder(t *testing.T) {
	db := pgtest.NewEmpty(t)
	holder := session(t, db.Direct+" application_name='forgeyard migrate alpha'")
	_, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(0x46590002))
	require.NoError(t, err)
	up := func() error {
		_, err := migrations.Up(t.Context(), migrations.Config{Owner: db.Owner, Direct: db.Direct, Name: "beta", Wait: 200 * time.Millisecond})
		return err
	}
	err = up()
	var locked *migrations.LockedError
	require.ErrorAs(t, err, &locked)
	require.Contains(t, locked.Holder, "forgeyard migrate alpha, backend pid ")
	require.NoError(t, holder.Close(t.Context()))
	require.NoError(t, up(), "a lock ends with its session")
	require.LessOrEqual(t, migrations.DefaultWait, 10*time.Second)
}

// A way down would drop what the previous binary, running beside this one, still uses.
func TestNoMigrationHasAWayDown(t *testing.T) {
	files, err := fs.Glob(migrations.Sources(), "*.sql")
	require.NoError(t, err)
	for _, name := range files {
		text, err := fs.ReadFile(migrations.Sources(), name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "goose Down", name)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	db := pgtest.New(t)
	_, err := session(t, db.Super).Exec(t.Context(), "INSERT INTO coordination.schema_version (version_id, is_applied) VALUES (9999, true)")
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), migrations.Config{Owner: db.Owner, Direct: db.Direct})
	var newer *migrations.NewerSchemaError
	require.ErrorAs(t, err, &newer)
	require.EqualValues(t, 9999, newer.Database)
}

// The app role owns nothing: it can neither switch a guard off nor go round it.
func TestAppRoleIsPowerless(t *testing.T) {
	db := pgtest.New(t)
	c := session(t, db.App)
	var owned int
	require.NoError(t, c.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE pg_get_userbyid(relowner) = current_user)
		+ (SELECT count(*) FROM pg_proc WHERE pg_get_userbyid(proowner) = current_user)`).Scan(&owned))
	require.Zero(t, owned)
	for _, sql := range []string{
		"TRUNCATE forge.leases", "DELETE FROM forge.agents", "DELETE FROM coordination.audit", "ALTER TABLE forge.leases DISABLE TRIGGER ALL", "DROP TABLE forge.leases",
		"UPDATE coordination.fence SET epoch = epoch + 1", "INSERT INTO coordination.fence DEFAULT VALUES", "DELETE FROM coordination.fence",
		"UPDATE coordination.cluster SET generation = 2", "SELECT coordination.claim('x')", "UPDATE coordination.audit SET actor = ''",
		"SELECT coordination.fence_stands(1::smallint, 1, 1, '', '')", "SET ROLE forgeyard_owner", "SET session_replication_role = replica",
		"CREATE OR REPLACE FUNCTION coordination.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
		"CREATE TABLE coordination.mine ()", "CREATE TABLE forge.mine ()", "CREATE TABLE public.mine ()",
		"UPDATE coordination.join_tokens SET expires_at = now()",
	} {
		_, err := c.Exec(t.Context(), sql)
		require.Equal(t, "42501", sqlstate(err), "%s: %v", sql, err)
	}
	// What retention prunes may be deleted by the fenced leader and by nobody else.
	for _, table := range []string{
		"forge.log_chunks", "forge.artifacts", "forge.outbox", "forge.dispatch", "forge.leases", "forge.jobs", "forge.runs", "forge.collections", "coordination.events",
	} {
		_, err := c.Exec(t.Context(), "DELETE FROM "+table)
		require.Equal(t, "FY002", sqlstate(err), "%s: %v", table, err)
	}
}

// The functions that carry authority run as their owner, on a search path that no caller can bend.
// Those of the write path run as their caller and name every object with its schema.
func TestFunctionsArePinned(t *testing.T) {
	db := pgtest.New(t)
	rows, err := session(t, db.Super).Query(t.Context(), `SELECT proname, prosecdef, provolatile::text, coalesce(array_to_string(proconfig, ','), '')
		FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace JOIN pg_language l ON l.oid = prolang WHERE nspname = 'coordination' AND lanname = 'plpgsql'`)
	require.NoError(t, err)
	type function struct{ Name, Volatile, Config string }
	seen := map[string]bool{}
	for rows.Next() {
		var f function
		var definer bool
		require.NoError(t, rows.Scan(&f.Name, &definer, &f.Volatile, &f.Config))
		seen[f.Name] = true
		require.Equal(t, "v", f.Volatile, f.Name)
		require.Equal(t, f.Name != "require_fence" && f.Name != "fence", definer, f.Name)
		if definer {
			require.True(t, strings.HasPrefix(f.Config, "search_path=pg_catalog, pg_temp"), "%s: %s", f.Name, f.Config)
		}
	}
	require.NoError(t, rows.Err())
	for _, name := range []string{"fence", "raise_fence", "fence_stands", "claim", "require_fence"} {
		require.True(t, seen[name], name)
	}
	var public int
	require.NoError(t, session(t, db.Super).QueryRow(t.Context(), `SELECT count(*) FROM pg_proc WHERE pronamespace = 'coordination'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')`).Scan(&public))
	require.Zero(t, public, "nobody but the app role calls them")
}

// Whatever stands first on a caller's search path, the functions of the write path find what they mean.
func TestWritePathIgnoresTheSearchPath(t *testing.T) {
	db := pgtest.New(t)
	super := session(t, db.Super)
	_, err := super.Exec(t.Context(), `
		INSERT INTO coordination.fence VALUES (1, 1, 5, 'a', 'a-1', coordination.system_identifier(), coordination.timeline(), now());
		CREATE TABLE guarded (epoch bigint NOT NULL DEFAULT coordination.fenced_epoch());
		CREATE TRIGGER guard BEFORE INSERT ON guarded FOR EACH STATEMENT EXECUTE FUNCTION coordination.require_fence('1');
		GRANT INSERT ON guarded TO forgeyard_app;
		CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO forgeyard_app;
		CREATE FUNCTION trap.yes(smallint, smallint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		CREATE FUNCTION trap.yes(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		CREATE FUNCTION trap.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
		CREATE OPERATOR trap.= (LEFTARG = smallint, RIGHTARG = smallint, FUNCTION = trap.yes);
		CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.yes);
		CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.no);
		CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.no);
		CREATE FUNCTION trap.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '1:1:1' $$;
		CREATE FUNCTION trap.current_setting(text) RETURNS text LANGUAGE sql AS $$ SELECT 'read committed' $$;
		CREATE FUNCTION trap.split_part(text, text, integer) RETURNS text LANGUAGE sql AS $$ SELECT '1' $$;
		CREATE FUNCTION trap.concat_ws(text, VARIADIC "any") RETURNS text LANGUAGE internal AS 'text_concat_ws';
		CREATE TABLE trap.fence AS SELECT 1::smallint AS role, 1::bigint AS generation, 4::bigint AS epoch`)
	require.NoError(t, err)
	c := session(t, db.App)
	_, err = c.Exec(t.Context(), "SET search_path = trap, pg_catalog")
	require.NoError(t, err)
	exec := func(sql string) string {
		_, err := c.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		return sqlstate(err)
	}
	require.Equal(t, "FY001", exec("SELECT coordination.fence(1::smallint, 1, 4)"), "only the real row counts, compared for real")
	require.Equal(t, "FY002", exec("INSERT INTO public.guarded VALUES (1)"))
	require.Equal(t, "FY005", exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT coordination.fence(1::smallint, 1, 5)"))
	require.Empty(t, exec("ROLLBACK"))
	require.Empty(t, exec("SELECT coordination.fence(1::smallint, 1, 5); INSERT INTO public.guarded DEFAULT VALUES"))
	var epoch int64
	require.NoError(t, super.QueryRow(t.Context(), "SELECT epoch FROM guarded").Scan(&epoch))
	require.EqualValues(t, 5, epoch)
}
