// Each invariant fires on the violation that is planted for it, on nothing else, and not on a history that is correct.

package history

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// Ids of the correct history.
const (
	cluster = "01CLVSTER00000000000000000"
	run     = "01RVN000000000000000000000"
	job     = "01J0B000000000000000000000"
)

// Keys of its clients: one was told that its run is there, one that it is not.
var (
	accepted = uuid.MustParse("aaaaaaaa-0000-4000-8000-000000000001")
	rejected = uuid.MustParse("aaaaaaaa-0000-4000-8000-000000000002")
	nobodys  = uuid.MustParse("aaaaaaaa-0000-4000-8000-000000000003")
)

// recorded is a database whose history is recorded.
type recorded struct {
	*testing.T
	conn *pgx.Conn
}

func install(t *testing.T) recorded {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).Super)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	require.NoError(t, Install(t.Context(), conn))
	return recorded{t, conn}
}

func (r recorded) exec(sql string, args ...any) {
	r.Helper()
	_, err := r.conn.Exec(r.Context(), sql, args...)
	require.NoError(r, err, sql)
}

// fenced runs statements under the fence of an epoch, in one transaction.
func (r recorded) fenced(epoch int64, statements ...string) {
	r.Helper()
	b := &pgx.Batch{}
	b.Queue(`SELECT coordination.fence(1::smallint, 1, $1)`, epoch)
	for _, sql := range statements {
		b.Queue(sql)
	}
	require.NoError(r, r.conn.SendBatch(r.Context(), b).Close(), "%v", statements)
}

func (r recorded) raise(epoch int64, node string) {
	r.Helper()
	r.exec(`SELECT coordination.raise_fence(1::smallint, 1, $1, $2, 'process')`, epoch, node)
}

func (r recorded) submit(id string, key uuid.UUID) {
	r.Helper()
	r.exec(`INSERT INTO forge.runs (id, name, idempotency_key, request_digest) VALUES ($1, 'run', $2, sha256(''))`, id, key.String())
}

func (r recorded) audit(node string) {
	r.Helper()
	r.exec(`INSERT INTO coordination.audit (at, actor, action, target, outcome, detail, node, epoch)
 VALUES (coordination.clock(), 'somebody', 'add', 'a node', 'accepted', '', $1, 6)`, node)
}

func (r recorded) agents(events ...AgentEvent) {
	r.Helper()
	require.NoError(r, AddAgentEvents(r.Context(), r.conn, events))
}

func (r recorded) told(key uuid.UUID, outcome Outcome) {
	r.Helper()
	require.NoError(r, AddClientOperation(r.Context(), r.conn, key, outcome))
}

func (r recorded) removed(node string) {
	r.Helper()
	require.NoError(r, AddRemoved(r.Context(), r.conn, node))
}

// did plants a row of hist: what node-b did under epoch 6, but for what is said otherwise.
func (r recorded) did(kind string, generation, epoch int64, node, subject string, attempt int, state string) {
	r.Helper()
	r.exec(`INSERT INTO hist (kind, role, generation, epoch, node, inc, subject, attempt, state) VALUES ($1, 'role-1', $2, $3, $4, 'process', $5, $6, $7)`,
		kind, generation, epoch, node, subject, attempt, state)
}

func (r recorded) check() Report {
	r.Helper()
	report, err := Check(r.Context(), r.conn)
	require.NoError(r, err)
	return report
}

const (
	leaseSQL = `WITH j AS (UPDATE forge.jobs SET state = 'leased', attempt = attempt + 1 RETURNING id, attempt), l AS (
 INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT id, attempt, 'agent', coordination.clock() FROM j RETURNING id)
 INSERT INTO forge.dispatch (lease_id, agent_id) SELECT id, 'agent' FROM l`
	longerSQL = `UPDATE forge.leases SET expires_at = expires_at + interval '1 s' WHERE state = 'active'`
)

// live makes a correct history by way of the tables that are recorded: a job is
// leased under one epoch, lost and leased again under the next, and ends.
func (r recorded) live() {
	r.Helper()
	r.exec(`SELECT coordination.claim('` + cluster + `')`)
	r.raise(5, "node-a")
	r.submit(run, accepted)
	r.exec(`INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms) VALUES ($1, $2, 'job', '[{}]', 1000)`, job, run)
	r.fenced(5, leaseSQL)
	r.exec(longerSQL) // a heartbeat
	r.raise(6, "node-b")
	r.fenced(6, longerSQL, `UPDATE forge.dispatch SET epoch = coordination.fenced_epoch()`)
	r.fenced(6, `UPDATE forge.leases SET state = 'expired', ended_at = coordination.clock()`, `UPDATE forge.jobs SET state = 'queued'`,
		`UPDATE forge.dispatch SET state = 'void'`)
	r.fenced(6, leaseSQL)
	r.exec(`UPDATE forge.dispatch SET state = 'delivered', delivered_at = coordination.clock() WHERE state = 'open'`)
	r.exec(`UPDATE forge.leases SET state = 'done', outcome = 'succeeded', ended_at = coordination.clock() WHERE state = 'active'`)
	r.exec(`UPDATE forge.jobs SET state = 'succeeded', finished_at = coordination.clock()`)
	r.audit("node-0")
	r.removed("node-0")
	r.agents(
		AgentEvent{Agent: "agent", N: 1, Generation: 1, Epoch: 5, Lease: "1", Job: job, Attempt: 1, What: "dispatch"},
		AgentEvent{Agent: "agent", N: 2, Generation: 1, Epoch: 5, Lease: "1", Job: job, Attempt: 1, What: "start"},
		AgentEvent{Agent: "agent", N: 3, Generation: 1, Epoch: 6, Lease: "2", Job: job, Attempt: 2, What: "dispatch"},
		AgentEvent{Agent: "agent", N: 4, Generation: 1, Epoch: 6, Lease: "2", Job: job, Attempt: 2, What: "start"})
	r.told(accepted, Acknowledged)
	r.told(rejected, Rejected)
	r.told(nobodys, Unknown)
	require.NoError(r, AddFault(r.Context(), r.conn, QuorumLoss, time.Now(), time.Now().Add(time.Hour))) // after the last grant
}

// TestWhatIsRecorded: each change that record.sql names leaves its row, and no other does.
func TestWhatIsRecorded(t *testing.T) {
	r := install(t)
	r.live()
	report := r.check()
	require.Empty(t, report.Violations)
	require.Equal(t, map[string]int{
		"acquire": 2, "write": 5, "write active": 2, "write expired": 1, "write queued": 1, "write void": 1,
		"extend": 2, "extend active": 1, "extend open": 1, "complete": 1, "complete done": 1, "submit": 1,
		"audit": 1, "audit accepted": 1, "member": 1, "member removed": 1,
	}, report.Counts)
	var strangers int
	require.NoError(t, r.conn.QueryRow(t.Context(), `SELECT count(*) FROM hist WHERE kind IN ('write', 'extend')
 AND (role, generation, epoch, node, inc) NOT IN (('role-1', 1, 5, 'node-a', 'process'), ('role-1', 1, 6, 'node-b', 'process'))`).Scan(&strangers))
	require.Zero(t, strangers, "rows in another name than their writer's")
	require.NoError(t, report.Err(map[string]int{"write active": 2}))
	require.ErrorContains(t, report.Err(map[string]int{"write active": 3}), "too little traffic")
}

// planted are violations of the history of live. With some, another invariant
// cannot hold either: a role's epoch that falls is a grant that does not rise or
// a write after a takeover, and an epoch of two owners was granted twice or not.
var planted = []struct {
	view  string
	also  []string
	plant func(recorded)
}{
	{"i01_epoch_regression", []string{"i05_write_after_takeover"}, func(r recorded) { r.did("write", 1, 5, "node-a", "late", 1, "active") }},
	{"i02_two_owners_one_epoch", []string{"i04_authority_without_grant"}, func(r recorded) { r.did("write", 1, 6, "node-c", "other", 1, "active") }},
	{"i03_grant_not_rising", nil, func(r recorded) { r.exec(`UPDATE coordination.fence SET raised_at = raised_at`) }},
	{"i04_authority_without_grant", nil, func(r recorded) { r.did("write", 1, 7, "node-b", "early", 1, "active") }},
	{"i05_write_after_takeover", nil, func(r recorded) {
		r.exec(`SELECT coordination.raise_fence(1::smallint, 2, 1, 'node-b', 'process')`)
		r.did("write", 1, 6, "node-b", "late", 1, "active")
	}},
	{"i08_acked_but_lost", nil, func(r recorded) { r.exec(`UPDATE client_op SET outcome = 'ok' WHERE op_id = $1`, nobodys) }},
	{"i09_rejected_but_applied", nil, func(r recorded) { r.submit("01RVN000000000000000000001", rejected) }},
	{"i10_applied_twice", nil, func(r recorded) {
		r.exec(`INSERT INTO forge.runs (id, name, idempotency_key, request_digest, submitted_by) VALUES ('01RVN000000000000000000001', 'run', $1, sha256(''), 'other')`, accepted.String())
	}},
	{"i13_grant_during_quorum_loss", nil, func(r recorded) {
		require.NoError(r, AddFault(r.Context(), r.conn, QuorumLoss, time.Now().Add(-time.Minute), time.Now().Add(time.Minute)))
		r.exec(`UPDATE hist SET at = at - interval '1 h' WHERE kind = 'acquire'`)
		r.raise(7, "node-b")
	}},
	{"i14_agent_accepted_stale", nil, func(r recorded) {
		r.agents(AgentEvent{Agent: "agent", N: 5, Generation: 1, Epoch: 5, Lease: "3", Job: "late", Attempt: 1, What: "dispatch"})
	}},
	{"i15_attempt_started_twice", nil, func(r recorded) {
		r.agents(AgentEvent{Agent: "other", N: 1, Generation: 1, Epoch: 6, Lease: "3", Job: job, Attempt: 2, What: "start"})
	}},
	{"i17_removed_node_acts", nil, func(r recorded) { r.removed("node-b"); r.audit("node-b") }},
	{"i17_removed_node_acts", nil, func(r recorded) {
		r.removed("node-b")
		r.fenced(6, `UPDATE forge.dispatch SET epoch = coordination.fenced_epoch()`)
	}},
	{"i20_two_leases_overlap", nil, func(r recorded) { r.did("write", 1, 6, "node-b", job, 2, "active") }},
}

func TestEveryInvariantFires(t *testing.T) {
	r := install(t)
	r.live()
	require.Empty(t, r.check().Violations)

	rows, err := r.conn.Query(t.Context(), `SELECT viewname FROM pg_views WHERE schemaname = 'public' ORDER BY 1`)
	require.NoError(t, err)
	views, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	fires := map[string]bool{}
	for _, p := range planted {
		fires[p.view] = true
	}
	require.Equal(t, views, slices.Sorted(maps.Keys(fires)), "invariants, and those with a planted violation")

	for _, p := range planted {
		t.Run(p.view, func(t *testing.T) {
			r := recorded{t, r.conn}
			r.exec(`BEGIN`)
			defer r.exec(`ROLLBACK`)
			p.plant(r)
			report := r.check()
			require.ElementsMatch(t, append([]string{p.view}, p.also...), slices.Collect(maps.Keys(report.Violations)), "%v", report.Violations)
			require.ErrorContains(t, report.Err(nil), p.view)
		})
	}
}

func TestAnswered(t *testing.T) {
	for status, want := range map[int]Outcome{0: Unknown, 200: Acknowledged, 201: Acknowledged, 302: Unknown, 400: Rejected, 408: Unknown, 409: Rejected, 429: Unknown, 503: Unknown} {
		require.Equal(t, want, Answered(status), "%d", status)
	}
}
