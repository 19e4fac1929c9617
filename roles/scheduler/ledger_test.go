// What an epoch keeps between two batches, and what it may not trust.

package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// counting counts the fenced round trips.
type counting struct {
	*plane
	trips *int
}

func (c counting) RaiseFence(ctx context.Context, g cluster.RoleGuard) error {
	return c.store.RaiseFence(ctx, g)
}
func (c counting) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	return c.store.Batch(ctx, fill)
}
func (c counting) Fenced(ctx context.Context, g cluster.RoleGuard, fill func(*pgx.Batch)) error {
	*c.trips++
	return c.store.Fenced(ctx, g, fill)
}

// TestBatchIsOneRoundTrip shows what a batch costs: one fenced round trip, from
// the first one of an epoch on; after idleness a reading comes first.
func TestBatchIsOneRoundTrip(t *testing.T) {
	p := newPlane(t, Config{})
	trips := 0
	p.Scheduler = New(Config{Store: counting{p, &trips}, BatchSize: 10})
	p.agent("a", 1000)
	p.submit(100, nil)
	g := p.lead()
	_, err := p.Reconcile(t.Context(), g)
	require.NoError(t, err)
	for i := range 10 {
		require.Equal(t, 10, p.batch(g))
		require.Equal(t, 2+i, trips)
	}
	require.Zero(t, p.batch(g))
	require.Equal(t, 12, trips)
	p.submit(1, nil)
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, 14, trips)

	registry := prometheus.NewRegistry()
	for _, c := range p.Collectors() {
		require.NoError(t, registry.Register(c))
	}
	value := func(name string) float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == name {
				m := f.GetMetric()[0]
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return -1
	}
	require.EqualValues(t, 101, value("forgeyard_scheduler_leases_total"))
	require.EqualValues(t, 11, value("forgeyard_scheduler_batch_leases"))
	require.EqualValues(t, -1, value("forgeyard_scheduler_active_leases"), "nothing is known before the first survey")
	p.submit(3, nil)
	_, err = p.survey(t.Context(), g)
	require.NoError(t, err)
	before := trips
	require.EqualValues(t, 101, value("forgeyard_scheduler_active_leases"))
	require.EqualValues(t, 3, value("forgeyard_scheduler_queue_depth"))
	require.Greater(t, value("forgeyard_scheduler_queue_oldest_wait_seconds"), 0.0)
	require.Equal(t, before, trips, "a scrape asks the database nothing")
	p.lead()
	require.EqualValues(t, -1, value("forgeyard_scheduler_queue_depth"), "the figures are those of the epoch")
}

// TestStalePlan shows that a plan that the world has overtaken makes fewer
// leases and no wrong one.
func TestStalePlan(t *testing.T) {
	p := newPlane(t, Config{BatchSize: 1})
	g := p.lead()
	for name, change := range map[string]string{
		"agent drains":        `UPDATE forge.agents SET drain_requested_at = now()`,
		"agent stops":         `UPDATE forge.agents SET closing = true`,
		"agent quarantined":   `UPDATE forge.agents SET quarantined_at = now()`,
		"agent unlinked":      `UPDATE forge.agents SET link = NULL, node = NULL`,
		"agent silent":        `UPDATE forge.agents SET last_seen = now() - interval '1 h'`,
		"agent doubted":       `UPDATE forge.agents SET unaccepted = 1`,
		"agent shrank":        `UPDATE forge.agents SET slots = 1`,
		"agent lost a label":  `UPDATE forge.agents SET labels = '{}'`,
		"job cancelled":       `UPDATE forge.jobs SET cancel_requested_at = now()`,
		"job out of attempts": `UPDATE forge.jobs SET attempt_limit = greatest(1, attempt), attempt = greatest(1, attempt), state = CASE state WHEN 'queued' THEN 'backoff' ELSE state END, not_before = '2999-01-01'`,
	} {
		t.Run(name, func(t *testing.T) {
			p.exec(`SET session_replication_role = replica`)
			p.exec(`TRUNCATE forge.agents, forge.runs, forge.jobs, forge.leases, forge.dispatch, forge.log_chunks, forge.artifacts`)
			p.agent("a", 2, "x")
			p.job(run(1), "1", "default")
			p.job(run(1), "2", "default")
			p.exec(`UPDATE forge.jobs SET labels = '{x}'`)
			require.Equal(t, 1, p.batch(g), "and the second is planned")
			require.True(t, p.ledgerOf(g).pending())
			p.exec(change)
			require.Zero(t, p.batch(g))
			require.Equal(t, 1, one[int](p, `SELECT count(*) FROM forge.leases`))
		})
	}
}

// TestDerivedStateRebuilt shows that a new leader knows whose turn it is: with
// and without failovers the queues are served in the same order, the turns are
// the same, and a queue that floods delays another by one lease.
func TestDerivedStateRebuilt(t *testing.T) {
	orders := make([][]string, 2)
	for i, failovers := range []bool{false, true} {
		p := newPlane(t, Config{BatchSize: 2, Tick: time.Hour})
		p.agent("a", 1000)
		p.backlog(3000, 3, 1) // a thousand of each queue
		g := p.lead()
		made := func() turns {
			orders[i] = all[string](p, `SELECT j.queue FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id ORDER BY l.id`)
			t := newTurns()
			for _, q := range orders[i] {
				t.served(q)
			}
			return t
		}
		for n := range 7 {
			if n == 3 {
				p.job(run(1), "late", "another")
				require.Equal(t, 2, p.batch(g), "planned before")
			}
			if failovers && n%2 == 1 {
				g = p.lead()
				_, err := p.Recover(t.Context(), g)
				require.NoError(t, err)
				require.Equal(t, made().ages(), p.ledgerOf(g).turns.ages())
			}
			require.Equal(t, 2, p.batch(g))
			require.Equal(t, made().ages(), p.ledgerOf(g).turns.ages())
		}
	}
	require.Equal(t, orders[0], orders[1])
	require.Equal(t, []string{"queue-0", "queue-1", "queue-2", "queue-0", "queue-1", "queue-2", "queue-0", "queue-1", "another", "queue-2"}, orders[0][:10])
}

// ages is how many leases ago each queue was served.
func (t turns) ages() map[string]uint64 {
	ages := map[string]uint64{}
	for q := range t.lastOf {
		ages[q] = t.made - t.last(q)
	}
	return ages
}

// TestManyKinds shows that kinds of jobs which no agent can run hold up nobody,
// though there are more of them than one reading looks at.
func TestManyKinds(t *testing.T) {
	p := newPlane(t, Config{})
	p.agent("a", 10, "zzz")
	p.backlog(2*classesRead, 1, 2*classesRead)
	p.exec(`UPDATE forge.jobs SET queue = 'a' || queue WHERE labels <> '{}'`) // before the one that can run
	g := p.lead()
	trips := 0
	for p.batch(g) == 0 {
		trips++
		require.True(t, p.ledgerOf(g).pending(), "the round is not complete")
		require.Less(t, trips, 4)
	}
	require.Positive(t, trips)
	require.Equal(t, []string{"{}"}, all[string](p, `SELECT labels::text FROM forge.jobs WHERE state = 'leased'`))
}

// TestMaintenanceStopsLeasing shows that a reason not to lease is asked for with every batch (§129, §130).
func TestMaintenanceStopsLeasing(t *testing.T) {
	hold := "maintenance: NoScheduling"
	p := newPlane(t, Config{BatchSize: 1, Hold: func() string { return hold }})
	p.agent("a", 3)
	p.submit(3, nil)
	g := p.lead()
	require.Zero(t, p.batch(g))
	hold = ""
	require.Equal(t, 1, p.batch(g))
	hold = "maintenance: ReadOnly"
	require.Zero(t, p.batch(g), "although it is planned")
	next, err := p.lease(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, p.cfg.Tick, next, "the loop does not spin over it")
	p.expireNow(g) // what runs is looked after
	hold = ""
	require.Equal(t, 1, p.batch(g))
}

// Lease ids rise in the order of making, within an epoch and from epoch to epoch.
func TestLeaseIDsRise(t *testing.T) {
	last := ""
	for _, epoch := range []uint64{1, 2, 255, 256, 1 << 40} {
		l := &ledger{epoch: epoch}
		for range 3 {
			for _, id := range l.ids(500) {
				s := fmt.Sprintf("%x", id)
				require.Greater(t, s, last)
				require.Equal(t, byte('8'), s[12], "the version")
				last = s
			}
			l.lastID += 1<<30 - 100 // over the edge of its fields
		}
	}
}

// A new epoch begins with nothing of the one before, on the same node too, and an
// epoch that has passed takes nothing from the present one.
func TestLedgerIsOfOneEpoch(t *testing.T) {
	p := newPlane(t, Config{})
	p.agent("a", 2)
	p.submit(2, nil)
	first := p.lead()
	require.Positive(t, p.batch(first))
	old := p.ledgerOf(first)
	second := p.lead()
	present := p.ledgerOf(second)
	require.NotSame(t, old, present)
	require.EqualValues(t, second.Epoch(), present.epoch)
	require.Empty(t, present.picks)
	require.Zero(t, present.lastID)
	require.False(t, present.known)
	require.NotSame(t, present, p.ledgerOf(first))
	require.Same(t, present, p.ledgerOf(second))
}
