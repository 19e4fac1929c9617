// The check at the end of a fleet: rows, agents' logs, acknowledged submissions and traces must tell one story.

package scenario

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/linear"
)

// Settle waits until all work is over and checks everything that a user may rely
// on: nothing lost, nothing twice, no invariant and no order broken, enough
// traffic. Nobody may submit any more. It checks a fleet once.
func (w *World) Settle(t testing.TB, leases int) fleet.Verdict {
	t.Helper()
	ctx := bounded(t)
	require.NoError(t, w.WaitTerminal(ctx))
	leases += w.FillSlots(t) // which are no traffic
	v, err := w.Check(ctx)
	require.NoError(t, err)
	require.Empty(t, v.Problems())
	require.LessOrEqual(t, v.MaxAttempt, 2)
	w.Judge(t, nil, map[string]int{"acquire": 1, "write active": leases, "complete done": leases})
	w.checkAcknowledged(t)
	return v
}

// Judge holds what the fleet left behind of itself against everything that must be
// true of it, whatever was done to it: the history in PostgreSQL, with the agents'
// journals and what clients were told of their submissions, those of Submit and
// others by key, against the invariants; grants and leases against the models; the daemons' traces against
// the order of a revocation, and their states against each other. The history must
// hold at least the given traffic, by history.Report.Counts. No job may be open, no
// fault under way, and the faults that an invariant asks about are added before. It
// judges a fleet once.
func (w *World) Judge(t testing.TB, others map[uuid.UUID]history.Outcome, atLeast map[string]int) {
	t.Helper()
	w.mu.Lock()
	told := maps.Clone(w.told)
	w.mu.Unlock()
	maps.Copy(told, others)
	require.NotEmpty(t, told, "nobody has submitted anything")
	journals := w.journals(t)
	w.database(t, func(ctx context.Context, c *pgx.Conn) {
		require.NoError(t, history.AddAgentEvents(ctx, c, history.EventsOf(journals)))
		for key, outcome := range told {
			require.NoError(t, history.AddClientOperation(ctx, c, key, outcome))
		}
		r, err := history.Check(ctx, c)
		require.NoError(t, err)
		t.Logf("recorded: %v; journals: %d; client operations: %d", r.Counts, len(journals), len(told))
		require.NoError(t, r.Err(atLeast))
		w.checkLinear(ctx, t, c, journals)
	})
	w.checkOrder(t)
	w.checkReplicas(t)
}

// FillSlots requires that the agents run as many jobs at once as they have slots:
// no fault has left an agent, or one slot of it, behind. It returns how many leases
// that took. Nothing else may be queued.
func (w *World) FillSlots(t testing.TB) (slots int) {
	t.Helper()
	require.Zero(t, w.count(t, `SELECT count(*) FROM forge.agents WHERE quarantined_at IS NOT NULL OR drain_requested_at IS NOT NULL`), "agents that are given nothing")
	slots = w.count(t, `SELECT sum(slots) FROM forge.agents`)
	goOn := w.gate(t, "filled")
	running, err := os.MkdirTemp(w.Dir(), "running")
	require.NoError(t, err)
	run := w.Accepted(t, 0, fleet.ShellRun("fill", slots, ": > "+running+"/$FORGEYARD_LEASE; "+goOn.wait()))
	eventually(t, fmt.Sprintf("all %d slots run a job", slots), func() bool {
		held, err := os.ReadDir(running)
		require.NoError(t, err)
		return len(held) == slots
	})
	goOn.open(t)
	w.ended(t, run.ID, runner.RunSucceeded)
	require.Equal(t, slots, w.count(t, `SELECT count(*) FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1`, run.ID), "a slot lost its job")
	return slots
}

// journals are the agents' own logs, by agent.
func (w *World) journals(t testing.TB) map[string][]runner.Entry {
	t.Helper()
	all, entries := map[string][]runner.Entry{}, 0
	for _, a := range w.Agents() {
		var err error
		all[a.Name], err = a.Journal()
		require.NoError(t, err)
		entries += len(all[a.Name])
	}
	require.NotZero(t, entries, "no agent has noted anything")
	return all
}

// checkLinear holds everything that was recorded of grants and leases against the
// models: what PostgreSQL wrote, what the daemons traced, what the agents noted.
func (w *World) checkLinear(ctx context.Context, t testing.TB, c *pgx.Conn, journals map[string][]runner.Entry) {
	t.Helper()
	grants, leases, err := linear.Recorded(ctx, c)
	require.NoError(t, err)
	require.NoError(t, linear.Grants(grants), "the fence, as PostgreSQL recorded it")
	require.NoError(t, linear.Leases(leases), "the leases, as PostgreSQL recorded them")
	var traced []trace.Event
	for _, n := range w.Nodes() {
		traced = append(traced, traceOf(t, n)...)
	}
	require.NoError(t, linear.Grants(linear.Raises(traced)), "the fence, as its owners traced it")
	rows, err := c.Query(ctx, `SELECT id::text FROM forge.leases WHERE state = 'done'`)
	require.NoError(t, err)
	done := map[string]bool{}
	var lease string
	_, err = pgx.ForEachRow(rows, []any{&lease}, func() error { done[lease] = true; return nil })
	require.NoError(t, err)
	held := linear.Journals(journals, func(lease string) bool { return done[lease] })
	require.NoError(t, linear.Leases(held), "the leases, as the agents noted them")
}

// checkAcknowledged requires every job of every run that a daemon acknowledged.
func (w *World) checkAcknowledged(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, len(w.acked)*trafficBatch, w.count(t, `SELECT count(*) FROM forge.jobs WHERE run_id = ANY($1)`, w.acked), "acknowledged jobs were lost")
}
