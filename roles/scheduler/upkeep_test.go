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

// TestUpkeepHoldsNoAgentWhileItWaits: a completion holds jobs while it waits for
// its agent's row, so upkeep must not lock agents before it waits for jobs.
func TestUpkeepHoldsNoAgentWhileItWaits(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 1)
	p.job(run(1), "lost", "default")
	require.Equal(t, 1, p.batch(g))
	p.end(p.leaseOf("lost"))
	p.job(run(2), "cancelled", "default")
	p.job(run(2), "held", "default", "cancelled")
	p.exec(`UPDATE forge.jobs SET cancel_requested_at = coordination.clock() WHERE name = 'cancelled'`)

	daemon, err := pgx.Connect(t.Context(), p.database.Super)
	require.NoError(t, err)
	defer func() { require.NoError(t, daemon.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := daemon.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM forge.jobs WHERE name = 'held' FOR NO KEY UPDATE`)
	require.NoError(t, err)
	kept := make(chan error, 1)
	go func() { _, err := p.maintain(p.Context(), g); kept <- err }()
	require.Eventually(t, func() bool {
		return one[bool](p, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%doomed%')`)
	}, soon, time.Millisecond, "upkeep waits for the job")
	_, err = tx.Exec(t.Context(), `SELECT FROM forge.agents WHERE id = 'a' FOR NO KEY UPDATE NOWAIT`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-kept)
}
