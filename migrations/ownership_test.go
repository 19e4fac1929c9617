// The column-ownership tables of DESIGN.md against the real schema.

package migrations_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// owned is a line of DESIGN.md: who writes a column, or the making of a row.
type owned struct{ table, column, writer string }

// move is a line of its second table.
type move struct{ table, from, to, writer string }

func design(t *testing.T) (columns []owned, moves []move) {
	t.Helper()
	b, err := os.ReadFile("DESIGN.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !strings.HasPrefix(cells[0], "forge.") && !strings.HasPrefix(cells[0], "coordination.") {
			continue
		}
		switch len(cells) {
		case 3:
			for _, c := range strings.Split(cells[1], ", ") {
				columns = append(columns, owned{cells[0], c, cells[2]})
			}
		case 4:
			moves = append(moves, move{cells[0], cells[1], cells[2], cells[3]})
		}
	}
	require.NotEmpty(t, columns)
	require.NotEmpty(t, moves)
	return columns, moves
}

// filled is a database with one row in each table, put there past the triggers.
func filled(t *testing.T) *pgtest.Database {
	t.Helper()
	db := pgtest.New(t)
	_, err := session(t, db.Super).Exec(t.Context(), `
		SET session_replication_role = replica;
		INSERT INTO coordination.fence VALUES (1, 1, 5, 'a', 'a-1', coordination.system_identifier(), coordination.timeline(), now());
		INSERT INTO coordination.join_tokens VALUES (sha256('x'), 'c', 'n', 'me', now(), now(), NULL, NULL);
		INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch) VALUES (now(), '', '', '', '', '', '', 0);
		INSERT INTO coordination.cluster (cluster_id, system_identifier, timeline) VALUES (repeat('0', 26), 1, 1);
		INSERT INTO forge.agents (id, session, slots) VALUES ('agent', 's', 1);
		INSERT INTO forge.runs (id, name, request_digest) VALUES (repeat('r', 26), 'run', sha256('x'));
		INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms) VALUES (repeat('j', 26), repeat('r', 26), 'job', '[{"argv":["true"]}]', 1000);
		INSERT INTO forge.leases (id, job_id, attempt, agent_id, epoch, generation, expires_at) VALUES (gen_random_uuid(), repeat('j', 26), 1, 'agent', 5, 1, now());
		INSERT INTO forge.dispatch (lease_id, agent_id, epoch, generation) SELECT id, agent_id, 5, 1 FROM forge.leases`)
	require.NoError(t, err)
	return db
}

func TestEveryColumnHasAWriter(t *testing.T) {
	columns, _ := design(t)
	var listed []string
	for _, c := range columns {
		listed = append(listed, c.table+"."+c.column)
	}
	rows, err := session(t, pgtest.New(t).Super).Query(t.Context(), `
		SELECT table_schema || '.' || table_name || '.' || column_name FROM information_schema.columns WHERE table_schema IN ('forge', 'coordination')
		UNION SELECT table_schema || '.' || table_name || '.(insert)' FROM information_schema.tables WHERE table_schema IN ('forge', 'coordination') AND table_type = 'BASE TABLE'`)
	require.NoError(t, err)
	actual, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	slices.Sort(actual)
	slices.Sort(listed)
	require.Equal(t, actual, listed, "DESIGN.md and the schema list different columns")
}

// refusal tells which refusal the app role gets outside a fence: FY002 from a
// trigger, 42501 where it has no privilege, "" for none of the two.
func refusal(err error) string {
	if s := sqlstate(err); s == "FY002" || s == "42501" {
		return s
	}
	return ""
}

func TestColumnsRefuseTheWrongWriter(t *testing.T) {
	columns, _ := design(t)
	c := session(t, filled(t).App)
	want := map[string][]string{
		"leader": {"FY002", "42501"}, "runner": {""}, "client": {""}, "function": {"42501"}, "once": {"42501"},
	}
	for _, o := range columns {
		allowed, ok := want[o.writer]
		if o.writer == "database" || o.writer == "shared" {
			continue
		}
		require.True(t, ok, "%v: unknown writer", o)
		sql := "UPDATE " + o.table + " SET " + o.column + " = " + o.column
		if o.column == "(insert)" {
			sql = "INSERT INTO " + o.table + " SELECT * FROM " + o.table + " LIMIT 1"
			if o.table == "coordination.audit" || o.table == "forge.jobs" {
				sql = strings.Replace(sql, " SELECT", " OVERRIDING SYSTEM VALUE SELECT", 1)
			}
		}
		_, err := c.Exec(t.Context(), sql)
		require.Contains(t, allowed, refusal(err), "%s: %v", sql, err)
	}
}

// A completion passes without a fence, a leader's move does not.
func TestStateMovesRefuseTheWrongWriter(t *testing.T) {
	columns, moves := design(t)
	db := filled(t)
	super, app := session(t, db.Super), session(t, db.App)
	_, err := super.Exec(t.Context(), "SET session_replication_role = replica")
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, m := range moves {
		covered[m.table] = true
		// The row gets its old state past triggers and, as the move itself, without the columns that a check ties to it.
		_, err := super.Exec(t.Context(), "ALTER TABLE "+m.table+" DISABLE TRIGGER ALL")
		require.NoError(t, err)
		dropChecks(t, super, m.table)
		_, err = super.Exec(t.Context(), "UPDATE "+m.table+" SET state = $1", m.from)
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), "ALTER TABLE "+m.table+" ENABLE TRIGGER ALL")
		require.NoError(t, err)
		_, err = app.Exec(t.Context(), "UPDATE "+m.table+" SET state = $1", m.to)
		if m.writer == "leader" {
			require.Equal(t, "FY002", sqlstate(err), "%v: %v", m, err)
		} else {
			require.NoError(t, err, "%v", m)
		}
	}
	for _, o := range columns {
		require.True(t, o.writer != "shared" || covered[o.table], "%v: no moves listed", o)
	}
}

func dropChecks(t *testing.T, super *pgx.Conn, table string) {
	t.Helper()
	rows, err := super.Query(t.Context(), "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', $1::text, conname) FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype = 'c'", table)
	require.NoError(t, err)
	drops, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, sql := range drops {
		_, err := super.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

// Under its fence a leader may do all of it, and rows take the fence's own epoch.
func TestLeaderWritesUnderItsFence(t *testing.T) {
	db := filled(t)
	columns, _ := design(t)
	c := session(t, db.App)
	for _, o := range columns {
		if o.writer != "leader" || o.column == "(insert)" {
			continue
		}
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SELECT coordination.fence(1::smallint, 1, 5)")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "UPDATE "+o.table+" SET "+o.column+" = "+o.column)
		require.NoError(t, err, "%v", o)
		require.NoError(t, tx.Commit(t.Context()))
		_, err = c.Exec(t.Context(), "UPDATE "+o.table+" SET "+o.column+" = "+o.column)
		require.NotEmpty(t, refusal(err), "the fence ended with its transaction")
	}
	var generation, epoch *int64
	require.NoError(t, c.QueryRow(t.Context(), "SELECT coordination.fenced_generation(), coordination.fenced_epoch()").Scan(&generation, &epoch))
	require.Nil(t, generation)
	require.Nil(t, epoch)
}

// Rows that a coordinated role makes carry the epoch and generation they were made under (§92).
func TestFencingColumns(t *testing.T) {
	c := session(t, pgtest.New(t).Super)
	for _, table := range []string{"forge.leases", "forge.dispatch"} {
		for column, function := range map[string]string{"epoch": "coordination.fenced_epoch()", "generation": "coordination.fenced_generation()"} {
			var def string
			var notNull bool
			require.NoError(t, c.QueryRow(t.Context(), `SELECT coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attnotnull FROM pg_attribute a
				LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = $1::text::regclass AND a.attname = $2`, table, column).Scan(&def, &notNull))
			require.Equal(t, function, def, "%s.%s", table, column)
			require.True(t, notNull)
		}
	}
}
