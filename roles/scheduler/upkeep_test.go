// What upkeep waits for while it holds which locks.

package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestUpkeepWaitsForNoOrder: a daemon holds orders while it waits for the row of
// their agent. Upkeep, which locks agents, leaves such an order for its next
// round; a new leader waits for it.
func TestUpkeepWaitsForNoOrder(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	old := p.lead()
	p.agent("a", 3)
	p.submit(3, func(_ int, j *runner.JobSpec) { j.AttemptLimit = 1 })
	require.Equal(t, 3, p.batch(old))
	leases := all[string](p, activeLeases)
	g := p.lead() // its reconciliation is still to come: what is open is stale
	p.complete(leases[0])
	p.end(leases[1])
	states := func() (s []string) {
		for _, l := range leases {
			s = append(s, one[string](p, `SELECT state || ' ' || epoch FROM forge.dispatch WHERE lease_id = $1::text::uuid`, l))
		}
		return s
	}
	before := states()

	daemon, err := pgx.Connect(t.Context(), p.database.Super)
	require.NoError(t, err)
	defer func() { require.NoError(t, daemon.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := daemon.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM forge.dispatch ORDER BY lease_id FOR NO KEY UPDATE`)
	require.NoError(t, err)

	ctx, done := context.WithTimeout(t.Context(), soon)
	defer done()
	k, err := p.maintain(ctx, g)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0, 0}, []int64{k.expired.leases, k.void, k.restamped})
	require.Equal(t, before, states())

	recovered := make(chan error, 1)
	go func() { _, err := p.Recover(ctx, g); recovered <- err }()
	require.Eventually(t, func() bool {
		return one[bool](p, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%forge.dispatch%')`)
	}, soon, time.Millisecond, "a new leader waits for the orders")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-recovered)
	require.Equal(t, []string{"void " + epoch(old), "void " + epoch(old), "open " + epoch(g)}, states())
}

// TestUpkeepWaitsForNoJob: completions lock the dependents of what they end in id
// order, and upkeep ends jobs of several kinds and runs in one transaction, in an order
// that no id gives. It leaves a job of which, or of whose dependents, somebody
// holds the row, and ends it a round later; the others it ends now.
func TestUpkeepWaitsForNoJob(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 3)
	for _, name := range []string{"11", "21", "31"} {
		p.job(run(1), name, "default")
	}
	p.exec(`UPDATE forge.jobs SET attempt_limit = 1`)
	require.Equal(t, 3, p.batch(g))
	lost, alone := p.leaseOf("11"), p.leaseOf("21")
	// What ends has the higher id, what it dooms the lower one: a completion that held 02 would wait for 22 while upkeep did the reverse.
	p.job(run(2), "22", "default")
	p.job(run(2), "02", "default", "22")
	p.job(run(3), "23", "default", "31")
	p.job(run(3), "03", "default", "23")
	p.job(run(1), "01", "default", "11")
	p.job(run(4), "24", "default")
	p.exec(`UPDATE forge.jobs SET cancel_requested_at = coordination.clock() WHERE name IN ('22', '24')`)
	p.exec(`UPDATE forge.jobs SET unmet = -1 WHERE name = '23'`)
	p.end(lost)
	p.end(alone)

	daemon, err := pgx.Connect(t.Context(), p.database.Super)
	require.NoError(t, err)
	defer func() { require.NoError(t, daemon.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := daemon.Begin(t.Context())
	require.NoError(t, err)
	lock := func(mode string, names ...string) {
		t.Helper()
		_, err := tx.Exec(t.Context(), `SELECT FROM forge.jobs WHERE name = ANY ($1) ORDER BY id FOR NO KEY UPDATE `+mode, names)
		require.NoError(t, err)
	}
	lock("", "01", "02", "03")
	ctx, done := context.WithTimeout(t.Context(), soon)
	defer done()
	k, err := p.maintain(ctx, g)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 0}, []int64{k.expired.leases, k.cancelled, k.skipped}, "those that nobody's rows are needed for")
	require.Equal(t, []string{
		"01 blocked", "02 blocked", "03 blocked", "11 leased", "21 failed", "22 queued", "23 blocked", "24 cancelled", "31 leased",
	}, p.states())
	require.Equal(t, "active", one[string](p, `SELECT state FROM forge.leases WHERE id = $1::text::uuid`, lost))
	lock("NOWAIT", "11", "22", "23") // nothing of it is left behind
	_, err = tx.Exec(t.Context(), `SELECT FROM forge.agents FOR NO KEY UPDATE NOWAIT`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))

	k = p.upkeepNow(g)
	require.Equal(t, []int64{1, 1, 2}, []int64{k.expired.leases, k.cancelled, k.skipped})
	require.Equal(t, []string{"01 blocked -1", "02 skipped -1", "03 blocked -1"},
		all[string](p, `SELECT name || ' ' || state || ' ' || unmet FROM forge.jobs WHERE name LIKE '0%' ORDER BY id`))
	require.EqualValues(t, 2, p.upkeepNow(g).skipped)
}
