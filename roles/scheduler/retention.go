// Retention: what ended long ago leaves the tables, in bounded batches and with pauses between.

package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgeyard/forgeyard/cluster"
)

// Retention says how long rows are kept after they are of no use any more, and
// how they are removed. Zero values take the defaults.
type Retention struct {
	Runs      time.Duration // 30 d after the last job of a run ended: its jobs, leases, logs, artifacts and itself
	Logs      time.Duration // as Runs; what a finished run wrote, when that is to go earlier
	Artifacts time.Duration // as Runs; what a finished run kept, when that is to go earlier
	Dispatch  time.Duration // 1 h; orders that were delivered or void and whose lease has ended
	Outbox    time.Duration // 3 d; events
	Facts     time.Duration // 30 d; what the cluster's view showed and shows no more, so that no event of it is told twice
	Garbage   time.Duration // 30 d; reports of collections of garbage, but for the last one
	Every     time.Duration // 1 min; between two passes
	Pause     time.Duration // 200 ms; between two batches of a pass
	Batch     int           // 1000; most rows of a table, but for the jobs of one run, in one transaction
}

func (r Retention) withDefaults() Retention {
	const day = 24 * time.Hour
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&r.Runs, 30 * day}, {&r.Dispatch, time.Hour}, {&r.Outbox, 3 * day}, {&r.Facts, 30 * day}, {&r.Garbage, 30 * day},
		{&r.Every, time.Minute}, {&r.Pause, 200 * time.Millisecond},
	} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
	if r.Logs <= 0 || r.Logs > r.Runs {
		r.Logs = r.Runs
	}
	if r.Artifacts <= 0 || r.Artifacts > r.Runs {
		r.Artifacts = r.Runs
	}
	if r.Batch <= 0 {
		r.Batch = 1000
	}
	return r
}

// removed counts rows by table.
type removed struct {
	Runs      int64 `json:"runs"`
	Jobs      int64 `json:"jobs"`
	Leases    int64 `json:"leases"`
	Dispatch  int64 `json:"dispatch"`
	Outbox    int64 `json:"outbox"`
	LogChunks int64 `json:"log_chunks"`
	Artifacts int64 `json:"artifacts"`
	Facts     int64 `json:"events"`
	Garbage   int64 `json:"collections"`
}

// The ids of runs rise with time and those of leases in the order of their
// making, so the oldest rows are found at the beginning of their keys; look
// bounds how far is looked past those that must stay, in batches.
const look = 20

// Runs go as a whole, the oldest first, as many as have at most $2 jobs
// together, or one. A run that has not ended, or has ended of late, is left
// alone with everything that belongs to it. What hangs on a job goes first.
const oldRunsSQL = `
SELECT id FROM (
  SELECT r.id, row_number() OVER (ORDER BY r.id) AS nth, sum(ended.jobs) OVER (ORDER BY r.id) AS jobs
    FROM (SELECT f.id FROM (SELECT id, submitted_at FROM forge.runs ORDER BY id LIMIT $3::bigint) f
           WHERE f.submitted_at < coordination.clock() - $1::interval ORDER BY f.id LIMIT $2::bigint) r
   CROSS JOIN LATERAL (
     SELECT count(*) AS jobs, bool_and(coalesce(j.finished_at < coordination.clock() - $1::interval, false)) AS old
       FROM forge.jobs j WHERE j.run_id = r.id) ended
   WHERE ended.old IS NOT FALSE) old
 WHERE nth = 1 OR jobs <= $2::bigint`

const oldDispatchSQL = `
DELETE FROM forge.dispatch d USING (
  SELECT o.lease_id FROM (SELECT lease_id, state, issued_at FROM forge.dispatch ORDER BY lease_id LIMIT $3::bigint) o
    JOIN forge.leases l ON l.id = o.lease_id
   WHERE o.state <> 'open' AND o.issued_at < coordination.clock() - $1::interval AND l.state <> 'active'
   ORDER BY o.lease_id LIMIT $2::bigint) old
 WHERE d.lease_id = old.lease_id AND d.state <> 'open'`

// Events go in the order in which they are read, without a gap.
const oldOutboxSQL = `
DELETE FROM forge.outbox o USING (
  SELECT xid, seq FROM (
    SELECT xid, seq, bool_and(at < coordination.clock() - $1::interval) OVER (ORDER BY xid, seq) AS old
      FROM (SELECT xid, seq, at FROM forge.outbox WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, seq LIMIT $2::bigint) first) e
   WHERE old) old
 WHERE o.xid = old.xid AND o.seq = old.seq`

// What the view showed when all of it was last noted has the newest time, however long ago that was.
const oldFactsSQL = `
DELETE FROM coordination.events e USING (
  SELECT id FROM coordination.events WHERE seen_at < (SELECT max(seen_at) FROM coordination.events) - $1::interval ORDER BY seen_at LIMIT $2::bigint) old
 WHERE e.id = old.id`

const oldGarbageSQL = `
DELETE FROM forge.collections c USING (
  SELECT at FROM forge.collections WHERE at < (SELECT least(max(at), coordination.clock() - $1::interval) FROM forge.collections) ORDER BY at LIMIT $2::bigint) old
 WHERE c.at = old.at`

// A live job may need what another of its run kept, so only what belongs to a
// run without one goes.
const oldContentSQL = `
DELETE FROM forge.%[1]s c USING (
  SELECT o.lease_id, o.%[2]s FROM (SELECT lease_id, %[2]s, at FROM forge.%[1]s ORDER BY lease_id, %[2]s LIMIT $3::bigint) o
    JOIN forge.leases l ON l.id = o.lease_id JOIN forge.jobs j ON j.id = l.job_id
   WHERE o.at < coordination.clock() - $1::interval
     AND NOT EXISTS (SELECT FROM forge.jobs x WHERE x.run_id = j.run_id AND x.finished_at IS NULL)
   ORDER BY o.lease_id LIMIT $2::bigint) old
 WHERE c.lease_id = old.lease_id AND c.%[2]s = old.%[2]s`

// prune is the loop's step: one batch of everything, and at once the next one after a pause as long as one was full.
func (s *Scheduler) prune(ctx context.Context, g cluster.RoleGuard) (time.Duration, error) {
	r := s.cfg.Retention
	var runs []string
	var sum removed
	err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		b.Queue(`SELECT removed FROM forge.retention`).QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
		b.Queue(oldRunsSQL, r.Runs, r.Batch, look*r.Batch).Query(func(rows pgx.Rows) (err error) {
			runs, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("find old runs: %w", err)
	}
	var n removed
	var logs, kept int64
	if len(runs) > 0 { // logs first, for they have by far the most rows
		chunks := int64(look * r.Batch)
		err = s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) { b.Queue(chunksSQL, runs, chunks).Exec(add(&n.LogChunks)) })
		if err != nil {
			return 0, fmt.Errorf("prune logs: %w", err)
		}
		if n.LogChunks == chunks {
			return r.Pause, s.note(ctx, g, sum, n, false)
		}
	}
	err = s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		if len(runs) > 0 {
			queuePrunedRuns(b, runs, &n)
		}
		b.Queue(oldDispatchSQL, r.Dispatch, r.Batch, look*r.Batch).Exec(add(&n.Dispatch))
		b.Queue(oldOutboxSQL, r.Outbox, r.Batch).Exec(affected(&n.Outbox))
		b.Queue(oldFactsSQL, r.Facts, r.Batch).Exec(affected(&n.Facts))
		b.Queue(oldGarbageSQL, r.Garbage, r.Batch).Exec(affected(&n.Garbage))
		if r.Logs < r.Runs {
			b.Queue(fmt.Sprintf(oldContentSQL, "log_chunks", "start"), r.Logs, r.Batch, look*r.Batch).Exec(affected(&logs))
		}
		if r.Artifacts < r.Runs {
			b.Queue(fmt.Sprintf(oldContentSQL, "artifacts", "name"), r.Artifacts, r.Batch, look*r.Batch).Exec(affected(&kept))
		}
	})
	if err != nil {
		return 0, fmt.Errorf("prune: %w", err)
	}
	full := int64(r.Batch)
	again := len(runs) > 0 || slices.Contains([]int64{n.Dispatch, n.Outbox, n.Facts, n.Garbage, logs, kept}, full)
	n.LogChunks, n.Artifacts = n.LogChunks+logs, n.Artifacts+kept
	if again {
		return r.Pause, s.note(ctx, g, sum, n, false)
	}
	return r.Every, s.note(ctx, g, sum, n, true)
}

const chunksSQL = `
DELETE FROM forge.log_chunks c USING (
  SELECT k.lease_id, k.start FROM forge.log_chunks k
    JOIN forge.leases l ON l.id = k.lease_id JOIN forge.jobs j ON j.id = l.job_id
   WHERE j.run_id = ANY ($1) LIMIT $2::bigint) old
 WHERE c.lease_id = old.lease_id AND c.start = old.start`

// queuePrunedRuns removes runs that have ended, with everything that hangs on
// them. Nothing joins an ended run any more, so what was found still holds.
func queuePrunedRuns(b *pgx.Batch, runs []string, n *removed) {
	const leases = `SELECT l.id FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = ANY ($1)`
	b.Queue(`DELETE FROM forge.artifacts WHERE run_id = ANY ($1)`, runs).Exec(affected(&n.Artifacts))
	b.Queue(`DELETE FROM forge.dispatch WHERE lease_id IN (`+leases+`)`, runs).Exec(add(&n.Dispatch))
	b.Queue(`DELETE FROM forge.leases WHERE id IN (`+leases+`)`, runs).Exec(affected(&n.Leases))
	b.Queue(`DELETE FROM forge.jobs WHERE run_id = ANY ($1)`, runs).Exec(affected(&n.Jobs))
	b.Queue(`DELETE FROM forge.runs WHERE id = ANY ($1)`, runs).Exec(affected(&n.Runs))
}

func add(sum *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*sum += tag.RowsAffected()
		return nil
	}
}

// note adds a batch to the sums, which every daemon shows with the collection of garbage.
func (s *Scheduler) note(ctx context.Context, g cluster.RoleGuard, sum, n removed, done bool) error {
	for _, c := range []struct {
		sum   *int64
		n     int64
		table string
	}{
		{&sum.Runs, n.Runs, "runs"}, {&sum.Jobs, n.Jobs, "jobs"}, {&sum.Leases, n.Leases, "leases"},
		{&sum.Dispatch, n.Dispatch, "dispatch"}, {&sum.Outbox, n.Outbox, "outbox"},
		{&sum.LogChunks, n.LogChunks, "log_chunks"}, {&sum.Artifacts, n.Artifacts, "artifacts"},
		{&sum.Facts, n.Facts, "events"}, {&sum.Garbage, n.Garbage, "collections"},
	} {
		*c.sum += c.n
		s.meter.pruned.WithLabelValues(c.table).Add(float64(c.n))
	}
	err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		b.Queue(`UPDATE forge.retention SET removed = $1::jsonb, passed_at = CASE WHEN $2 THEN coordination.clock() ELSE passed_at END`, sum, done)
	})
	if err != nil {
		return fmt.Errorf("note what was pruned: %w", err)
	}
	return nil
}
