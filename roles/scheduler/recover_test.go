// A new epoch: what it scans, gives back, re-stamps and ends.

package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/store"
)

// TestStatementsArePlanned: each statement of the first transaction and of the
// first batch can be planned ahead as a warmed session does it, the whole of it,
// in the schema as it is, by the user that runs it.
func TestStatementsArePlanned(t *testing.T) {
	p := newPlane(t, Config{})
	c, err := pgx.Connect(t.Context(), p.database.App)
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	require.Contains(t, Statements(), leaseSQL)
	require.Contains(t, Statements(), scanSQL)
	for _, sql := range Statements() {
		lines, err := store.Plan(t.Context(), c, sql)
		require.NoError(t, err, sql)
		require.NotContains(t, strings.Join(lines, "\n"), "One-Time Filter: false", "a part is not planned: %s", sql)
	}
}

// TestRecoveryScan shows that a new leader looks at everything it will work on (§85, §249).
func TestRecoveryScan(t *testing.T) {
	p := newPlane(t, Config{})
	old := p.lead()
	p.agent("a", 2)
	p.agent("b", 1)
	p.exec(`UPDATE forge.agents SET last_seen = coordination.clock() - interval '1 h' WHERE id = 'b'`)
	p.submit(5, nil)
	require.Equal(t, 2, p.batch(old))
	p.exec(`UPDATE forge.dispatch SET state = 'delivered', delivered_at = now() WHERE lease_id = (SELECT min(id::text)::uuid FROM forge.leases)`)

	p.exec(`UPDATE forge.leases SET accepted_at = coordination.clock() WHERE id = (SELECT min(id::text)::uuid FROM forge.leases)`)

	found, err := p.Recover(t.Context(), p.lead())
	require.NoError(t, err)
	for name, c := range map[string]struct{ got, want int }{
		"eligible": {found.Eligible, 3}, "leases": {found.Active, 2}, "reservations": {found.Reserved, 1}, "outbox": {found.Orders, 1}, "restamped": {found.Restamp, 1}, "runners": {found.Agents, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.got) })
	}
	require.Contains(t, found.String(), "3 jobs queued, 2 leases active")
}

// TestOutageIsGivenBackExactly shows the arithmetic of the lease clock: a new
// epoch adds exactly clock − tick to every active lease, once, and never less than nothing.
func TestOutageIsGivenBackExactly(t *testing.T) {
	p := newPlane(t, Config{})
	g := p.lead()
	p.agent("a", 3)
	p.submit(3, nil)
	require.Equal(t, 3, p.batch(g))
	p.complete(all[string](p, activeLeases)[2])
	p.exec(`UPDATE forge.leases SET expires_at = '2026-01-01 00:01:00Z' WHERE state = 'active'`)
	expires := func() []time.Time {
		return all[time.Time](p, `SELECT DISTINCT expires_at FROM forge.leases WHERE state = 'active'`)
	}
	start := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	at := func(offset string) { // stops the database's clock
		p.exec(`CREATE OR REPLACE FUNCTION coordination.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
			AS 'SELECT timestamptz ''2026-01-01 00:00:00Z'' + interval ''` + offset + `'''`)
	}
	p.exec(`SET session_replication_role = replica`) // plays the last tick of a leader that died
	p.exec(`UPDATE forge.tick SET at = '2026-01-01 00:00:00Z'`)
	p.exec(`SET session_replication_role = origin`)

	for _, c := range []struct {
		clock       string
		outage, sum time.Duration
	}{
		{"10.000001 s", 10*time.Second + time.Microsecond, 10*time.Second + time.Microsecond},
		{"10.000001 s", 0, 10*time.Second + time.Microsecond}, // nothing passed: nothing is given twice
		{"11 s", 999999 * time.Microsecond, 11 * time.Second}, // flapping: each gap once
		{"5 s", 0, 11 * time.Second},                          // the clock went backwards
		{"7 s", 2 * time.Second, 13 * time.Second},            // and is followed from there
		{"1 h 7 s", time.Hour, time.Hour + 13*time.Second},    // a long outage ends nothing either
	} {
		at(c.clock)
		next := p.lead()
		found, err := p.Recover(t.Context(), next)
		require.NoError(t, err)
		require.Equal(t, c.outage, found.Outage)
		require.Equal(t, []time.Time{start.Add(c.sum)}, utc(expires()), "at %s", c.clock)
		g = next
	}

	// Inside an epoch only a gap beyond three ticks is an outage, and the expiry loop counts it before it ends anything.
	at("1 h 10 s")
	_, err := p.maintain(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, []time.Time{start.Add(time.Hour + 13*time.Second)}, utc(expires()), "three ticks are not an outage")
	at("3 h")
	p.expireNow(g)
	require.Len(t, all[string](p, activeLeases), 2)
	require.Equal(t, []time.Time{start.Add(3*time.Hour + 3*time.Second)}, utc(expires()))
	at("3 h 3 s")
	p.expireNow(g)
	require.Len(t, all[string](p, activeLeases), 2, "53 s and more are left")
}

func utc(at []time.Time) []time.Time {
	for i := range at {
		at[i] = at[i].UTC()
	}
	return at
}

// A job whose end was asked for does not run again because its agent was lost first.
func TestExpiryOfACancelledLeaseQueuesNothing(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	g := p.lead()
	p.agent("a", 1)
	run := p.submit(1, func(_ int, j *runner.JobSpec) { j.AttemptLimit = 3 })
	require.Equal(t, 1, p.batch(g))
	lease := all[string](p, activeLeases)[0]
	p.cancel(run)
	p.end(lease)
	p.expireNow(g)
	doc, err := runner.Get(t.Context(), p.store, run)
	require.NoError(t, err)
	require.Equal(t, runner.JobCancelled, doc.Jobs[0].State)
	require.Contains(t, doc.Jobs[0].Reason, "cancelled: agent a did not extend it in time")
	require.Equal(t, runner.LeaseExpired, doc.Jobs[0].Leases[0].State)
	require.Zero(t, p.batch(g), "nothing is queued")
}

// TestExpiryRequeuesUntilTheLimit shows that a lease whose time is over ends,
// its job is queued at its old place with the next attempt, and fails with the last one.
func TestExpiryRequeuesUntilTheLimit(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour}) // no slowness of this machine is an outage
	g := p.lead()
	p.agent("a", 1)
	run := p.submit(2, func(i int, j *runner.JobSpec) { j.AttemptLimit = 2 })
	for attempt := 1; attempt <= 2; attempt++ {
		require.Equal(t, 1, p.batch(g))
		lease := all[string](p, activeLeases)[0]
		require.Equal(t, "job-0", one[string](p, `SELECT name FROM forge.jobs WHERE state = 'leased'`), "the old place in the queue")
		p.expireNow(g)
		require.Equal(t, []string{lease}, all[string](p, activeLeases), "its time is not over")
		p.end(lease)
		p.expireNow(g)
		require.Empty(t, all[string](p, activeLeases))
		require.Equal(t, "void", one[string](p, `SELECT state FROM forge.dispatch WHERE lease_id = $1::text::uuid`, lease))
		require.Zero(t, p.complete(lease), "a completion after the end is refused")
	}
	doc, err := runner.Get(t.Context(), p.store, run)
	require.NoError(t, err)
	job := doc.Jobs[0]
	require.Equal(t, runner.JobFailed, job.State)
	require.Equal(t, 2, job.Attempt)
	require.Contains(t, job.Reason, "attempt 2 of 2: agent a did not extend it in time")
	require.Equal(t, []int{1, 2}, []int{job.Leases[0].Attempt, job.Leases[1].Attempt})
	require.Equal(t, runner.LeaseExpired, job.Leases[1].State)
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, "job-1", one[string](p, `SELECT name FROM forge.jobs WHERE state = 'leased'`))
	_, err = p.super.Exec(t.Context(), `UPDATE forge.jobs SET attempt = attempt_limit + 1`)
	require.ErrorContains(t, err, "FY002")
	p.exec(`ALTER TABLE forge.jobs DISABLE TRIGGER USER`)
	_, err = p.super.Exec(t.Context(), `UPDATE forge.jobs SET attempt = attempt_limit + 1`)
	require.ErrorContains(t, err, "jobs_attempt_limit")
}

// TestStaleDispatchReconciled shows what becomes of the orders of an epoch that
// ended: delivered ones stay, open ones take the new epoch before the first new
// lease, those whose lease has ended are void (§244).
func TestStaleDispatchReconciled(t *testing.T) {
	p := newPlane(t, Config{})
	old := p.lead()
	p.agent("a", 3)
	p.submit(3, nil)
	require.Equal(t, 3, p.batch(old))
	leases := all[string](p, `SELECT l.id::text FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id ORDER BY j.seq`)
	p.exec(`UPDATE forge.dispatch SET state = 'delivered', delivered_at = now() WHERE lease_id = $1::text::uuid`, leases[0])
	p.complete(leases[2]) // by a resync, say: its order was never marked

	next := p.lead()
	found, err := p.Recover(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, 1, found.Restamp)
	require.Equal(t, 1, found.Void)
	order := func(i int) string {
		return one[string](p, `SELECT state || ' ' || epoch FROM forge.dispatch WHERE lease_id = $1::text::uuid`, leases[i])
	}
	require.Equal(t, "delivered "+epoch(old), order(0))
	require.Equal(t, "open "+epoch(next), order(1), "whoever sent it under the old epoch reads it again")
	require.Equal(t, "void "+epoch(old), order(2))

	// A daemon opens a delivered order again: the dispatch loop stamps it.
	p.exec(`UPDATE forge.dispatch SET state = 'open' WHERE lease_id = $1::text::uuid`, leases[0])
	_, err = p.maintain(t.Context(), next)
	require.NoError(t, err)
	require.Equal(t, "open "+epoch(next), order(0))
}

// TestQueueRebuiltEqual shows that a leader which starts in the middle serves
// the rest in the order in which a leader that never failed would have (§37, §249).
func TestQueueRebuiltEqual(t *testing.T) {
	orders := make([][]string, 2)
	for i, failovers := range []bool{false, true} {
		p := newPlane(t, Config{BatchSize: 1, Tick: time.Hour})
		g := p.lead()
		p.agent("a", 1)
		p.submit(9, func(i int, j *runner.JobSpec) { j.Priority = i % 3 })
		for n := range 9 {
			if failovers && n%2 == 1 {
				g = p.lead()
				_, err := p.Recover(t.Context(), g)
				require.NoError(t, err)
			}
			require.Equal(t, 1, p.batch(g))
			lease := all[string](p, activeLeases)[0]
			orders[i] = append(orders[i], one[string](p, `SELECT j.name FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id WHERE l.id = $1::text::uuid`, lease))
			if n == 4 { // one goes back into the queue, to its old place
				p.end(lease)
				p.expireNow(g)
				require.Equal(t, 1, p.batch(g))
				lease = all[string](p, activeLeases)[0]
			}
			p.complete(lease)
		}
	}
	require.Equal(t, orders[0], orders[1])
	require.Equal(t, []string{"job-2", "job-5", "job-8", "job-1", "job-4", "job-7", "job-0", "job-3", "job-6"}, orders[0])
}
