//go:build chaos

// The verdict of a chaos run: tables, agents' journals, clients, logs and artifacts must tell one story.

package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

const (
	sampledLogs      = 200
	sampledArtifacts = 100
	lastLogs         = 2 * time.Minute // for the rest of a log, once its job has ended
)

// accounts holds what a run left against what must be true of it.
type accounts struct {
	t    *testing.T
	w    *scenario.World
	c    *client
	n    *nemesis
	conn *pgx.Conn
}

func newAccounts(t *testing.T, w *scenario.World, c *client, n *nemesis) *accounts {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.DSN("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return &accounts{t: t, w: w, c: c, n: n, conn: conn}
}

// checkAll fills all slots of the agents once and then checks everything, that work
// too; others is how many jobs beside the pipelines' were submitted before.
func (a *accounts) checkAll(pipelines, others int) {
	a.t.Helper()
	others += a.w.FillSlots(a.t)
	v, err := a.w.Check(a.t.Context())
	require.NoError(a.t, err)
	a.t.Logf("%+v", v)
	require.Equal(a.t, pipelines*JobsOfAPipeline+others, v.Submitted, "acknowledged jobs are not there, or some are there twice")
	require.Empty(a.t, v.Problems())
	for _, q := range a.n.quorums {
		require.NoError(a.t, history.AddFault(a.t.Context(), a.conn, history.QuorumLoss, q.from, q.to))
	}
	a.w.Judge(a.t, a.c.outcomes, map[string]int{"acquire": 2, "write active": v.LeasesMade, "complete done": v.LeasesMade / 2, "submit": len(a.c.outcomes)})
	a.checkRows()
	a.checkLogs(pipelines)
	a.checkArtifacts(pipelines)
}

// facts are questions that have the answer 0, each with an example.
var facts = []struct{ what, sql string }{
	{"starts that no lease of that agent accounts for", `
		SELECT count(*), coalesce(min(g.agent || ' ' || g.lease), '') FROM agent_log g
		  LEFT JOIN forge.leases l ON l.id::text = g.lease AND l.job_id = g.job AND l.attempt = g.attempt AND l.agent_id = g.agent
		 WHERE g.what = 'start' AND (l.id IS NULL OR l.state = 'active')`},
	{"results of attempts that their agent never started", `
		SELECT count(*), coalesce(min(l.id::text), '') FROM forge.leases l
		 WHERE l.outcome IN ('succeeded', 'failed', 'timeout')
		   AND NOT EXISTS (SELECT FROM agent_log g WHERE g.what = 'start' AND g.lease = l.id::text AND g.agent = l.agent_id)`},
	{"jobs that succeeded without exactly one attempt that did, the last", `
		SELECT count(*), coalesce(min(j.id), '') FROM forge.jobs j
		 WHERE j.state = 'succeeded' AND ARRAY(SELECT l.attempt FROM forge.leases l WHERE l.job_id = j.id AND l.outcome = 'succeeded') <> ARRAY[j.attempt]`},
	{"jobs whose leases are not numbered from 1 to their attempt", `
		SELECT count(*), coalesce(min(j.id), '') FROM forge.jobs j
		 WHERE j.attempt <> (SELECT count(*) FROM forge.leases l WHERE l.job_id = j.id AND l.attempt BETWEEN 1 AND j.attempt)`},
	{"orders left open", `SELECT count(*), coalesce(min(lease_id::text), '') FROM forge.dispatch WHERE state = 'open'`},
	{"logs whose pieces do not join", `
		SELECT count(*), coalesce(min(l.id::text), '') FROM forge.leases l
		 WHERE l.log_bytes <> (SELECT coalesce(sum(c.length), 0) FROM forge.log_chunks c WHERE c.lease_id = l.id)
		    OR l.log_bytes <> (SELECT coalesce(max(c.start + c.length), 0) FROM forge.log_chunks c WHERE c.lease_id = l.id)`},
}

// endedWrong counts and names jobs that did not end as Pipeline means them to.
// In the runs of $1, which somebody cancelled, every end is right.
const endedWrong = `
SELECT count(*), coalesce(min(format('%s of %s is %s after %s attempts (%s)', name, run_id, state, attempt, reason)), '')
  FROM forge.jobs
 WHERE run_id <> ALL ($1)
   AND state <> CASE name WHEN 'broken' THEN 'failed' WHEN 'after-broken' THEN 'skipped' ELSE 'succeeded' END`

func (a *accounts) checkRows() {
	a.t.Helper()
	for _, f := range facts {
		a.none(f.what, f.sql)
	}
	a.none("jobs that ended otherwise than they must", endedWrong, a.c.cancelled)
}

// none requires a count of 0.
func (a *accounts) none(what, sql string, args ...any) {
	a.t.Helper()
	var n int
	var example string
	require.NoError(a.t, a.conn.QueryRow(a.t.Context(), sql, args...).Scan(&n, &example), what)
	require.Zero(a.t, n, "%s, such as %s", what, example)
}

// checkLogs requires every log of a successful attempt to be whole, and reads some.
func (a *accounts) checkLogs(pipelines int) {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		var n int
		err := a.conn.QueryRow(a.t.Context(), `SELECT count(*) FROM forge.leases WHERE outcome = 'succeeded' AND NOT log_final`).Scan(&n)
		return err == nil && n == 0
	}, lastLogs, time.Second, "logs of successful attempts are not whole")
	want := ExpectedLog()
	for i, at := range a.sample(pipelines, sampledLogs) {
		body := a.get(i, "/v1/runs/"+a.c.runs[at]+"/jobs/"+LinesJob+"/logs")
		got, err := io.ReadAll(body)
		require.NoError(a.t, err)
		require.NoError(a.t, body.Close())
		require.Equal(a.t, want, string(got), "the log of %s in run %s", LinesJob, a.c.runs[at])
	}
}

// checkArtifacts downloads some outputs and unpacks them.
func (a *accounts) checkArtifacts(pipelines int) {
	a.t.Helper()
	for i, at := range a.sample(pipelines, sampledArtifacts) {
		body := a.get(i, "/v1/runs/"+a.c.runs[at]+"/jobs/"+BuildJob+"/artifacts/"+BuildOutput)
		dir := filepath.Join(a.t.TempDir(), "tree")
		_, err := artifact.UnpackZstd(a.t.Context(), body, dir, artifact.Limits{})
		require.NoError(a.t, err)
		require.NoError(a.t, body.Close())
		got, err := os.ReadFile(filepath.Join(dir, "out", "binary"))
		require.NoError(a.t, err)
		require.Equal(a.t, Built(at)+"\n", string(got))
	}
}

// sample picks up to count pipelines, evenly, leaving out those that were cancelled.
func (a *accounts) sample(pipelines, count int) (picked []int) {
	step := max(1, pipelines/count)
	for i := 0; i < pipelines; i += step {
		if !slices.Contains(a.c.cancelled, a.c.runs[i]) {
			picked = append(picked, i)
		}
	}
	require.NotEmpty(a.t, picked)
	return picked
}

// get reads from the i-th daemon, counted round.
func (a *accounts) get(i int, path string) io.ReadCloser {
	a.t.Helper()
	nodes := a.w.Nodes()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, nodes[i%len(nodes)].Endpoint()+path, nil)
	require.NoError(a.t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(a.t, err)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		require.FailNow(a.t, fmt.Sprintf("%s: %s: %s", path, resp.Status, text))
	}
	return resp.Body
}

// checkFaults requires that each kind of fault happened, once in two minutes or more,
// and that the work felt them. It counts them for the record.
func (a *accounts) checkFaults(minutes float64, counts *record.Suite) {
	a.t.Helper()
	all := slices.Concat(daemonKinds(), agentKinds(), outlasting())
	for _, k := range all {
		counts.Add(k.Name, a.n.done[k.Name])
		owed := max(1, int(minutes/2))
		if k.Name == outlast {
			owed = max(1, int(minutes/4)) // each takes more than a minute
		}
		require.GreaterOrEqual(a.t, a.n.done[k.Name], owed, "%s: it happened too rarely", k.Name)
	}
	for _, felt := range []struct{ what, sql string }{
		{"leases lost", `SELECT count(*) FROM forge.leases WHERE state = 'expired'`},
		{"leases that outlived their paused agent", `SELECT count(*) FROM forge.leases WHERE state = 'expired' AND agent_id = 'agent-1'`},
		{"jobs cancelled", `SELECT count(*) FROM forge.jobs WHERE state = 'cancelled'`},
		{"failed attempts repeated", `SELECT count(*) FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.outcome = 'failed' AND l.attempt < j.attempt`},
		{"epochs under which leases were made", `SELECT count(DISTINCT epoch) FROM forge.leases`},
		{"most attempts of a job", `SELECT max(attempt) FROM forge.jobs`},
	} {
		var n int
		require.NoError(a.t, a.conn.QueryRow(a.t.Context(), felt.sql).Scan(&n))
		a.t.Logf("%-40s %6d", felt.what, n)
		require.Positive(a.t, n, felt.what)
	}
	a.t.Logf("submissions sent again: %d; runs cancelled: %d", a.c.repeats, len(a.c.cancelled))
	require.NotEmpty(a.t, a.c.cancelled)
}
