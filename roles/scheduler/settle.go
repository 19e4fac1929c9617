// Settling: jobs that nobody has leased become queued, skipped or cancelled.

package scheduler

import (
	"github.com/jackc/pgx/v5"
)

// Jobs whose needs have all succeeded, and failed ones whose time to be repeated
// has come. Nothing here waits for a lock, so it may share a transaction with leases.
const readySQL = `
WITH ready AS (
  SELECT id FROM forge.jobs WHERE state = 'blocked' AND unmet = 0 AND cancel_requested_at IS NULL
   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE forge.jobs j SET state = 'queued', queued_at = coordination.clock() FROM ready WHERE j.id = ready.id AND j.state IS NOT DISTINCT FROM 'blocked'`

const dueSQL = `
WITH due AS (
  SELECT id FROM forge.jobs
   WHERE state = 'backoff' AND not_before <= (SELECT coordination.clock()) AND cancel_requested_at IS NULL
   ORDER BY not_before LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE forge.jobs j SET state = 'queued', queued_at = coordination.clock(), not_before = NULL FROM due WHERE j.id = due.id AND j.state IS NOT DISTINCT FROM 'backoff'`

func (s *Scheduler) queueReady(b *pgx.Batch) {
	b.Queue(readySQL, s.cfg.BatchSize)
	b.Queue(dueSQL, s.cfg.BatchSize)
}

// dependentsSQL goes on in a statement whose CTE "cause" holds jobs, locked, that
// may end without success. The CTE "free" keeps those whose dependents are all
// locked too: a job ends in the statement that dooms what needs it, and if
// another transaction holds one of these, it ends in a later round. So upkeep
// waits for nobody's jobs, in whatever order others lock them.
const dependentsSQL = `, hit AS MATERIALIZED (
  SELECT c.id AS cause, d.id FROM cause c JOIN forge.jobs d ON d.run_id = c.run_id AND c.name = ANY (d.needs)
   WHERE c.needed AND d.state = 'blocked' AND d.unmet >= 0 AND d.cancel_requested_at IS NULL), held AS MATERIALIZED (
  SELECT d.id FROM forge.jobs d WHERE d.id IN (SELECT id FROM hit) AND d.state IS NOT DISTINCT FROM 'blocked' FOR NO KEY UPDATE SKIP LOCKED), free AS MATERIALIZED (
  SELECT c.id FROM cause c
   WHERE NOT EXISTS (SELECT FROM hit LEFT JOIN held ON held.id = hit.id WHERE hit.cause = c.id AND held.id IS NULL))`

// doomSQL goes on in a statement with the CTEs of dependentsSQL, whose CTE
// "ended" returns what became of the free jobs: what needs an ended one never runs.
const doomSQL = `, doomed AS (
  UPDATE forge.jobs d SET unmet = -1 FROM (SELECT DISTINCT hit.id FROM hit JOIN ended ON ended.id = hit.cause WHERE ended.state <> 'queued') h
   WHERE d.id = h.id AND d.state IS NOT DISTINCT FROM 'blocked')`

// A cancelled job that nobody has leased. Its dependents are doomed, but for
// those that are to be cancelled too.
const cancelSQL = `
WITH cause AS MATERIALIZED (
  SELECT id, run_id, name, needed FROM forge.jobs
   WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL AND state <> 'leased'
   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)` + dependentsSQL + `, ended AS (
  UPDATE forge.jobs j SET state = 'cancelled', finished_at = coordination.clock(), not_before = NULL,
         reason = CASE WHEN j.reason = '' THEN 'cancelled before it was leased' ELSE j.reason END
    FROM free WHERE j.id = free.id AND j.state IN ('blocked', 'queued', 'backoff')
  RETURNING j.id, j.state)` + doomSQL + `
SELECT count(*) FROM ended`

// A job that needs one which will never succeed. It dooms what needs it, one
// step along the needs each time.
const skipSQL = `
WITH cause AS MATERIALIZED (
  SELECT id, run_id, name, needed FROM forge.jobs WHERE state = 'blocked' AND unmet < 0 AND cancel_requested_at IS NULL
   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)` + dependentsSQL + `, ended AS (
  UPDATE forge.jobs j SET state = 'skipped', finished_at = coordination.clock(),
         reason = coalesce((SELECT 'needs ' || n.name || ', which is ' || n.state FROM forge.jobs n
            WHERE n.run_id = j.run_id AND n.name = ANY (j.needs) AND n.state IN ('failed', 'cancelled', 'skipped') ORDER BY n.seq LIMIT 1),
           'needs a job that did not succeed')
    FROM free WHERE j.id = free.id AND j.state = 'blocked'
  RETURNING j.id, j.state)` + doomSQL + `
SELECT count(*) FROM ended`

// queueSettled queues the ends of jobs that nobody has leased, and counts them.
func (s *Scheduler) queueSettled(b *pgx.Batch, cancelled, skipped *int64) {
	b.Queue(cancelSQL, s.cfg.BatchSize).QueryRow(func(row pgx.Row) error { return row.Scan(cancelled) })
	b.Queue(skipSQL, s.cfg.BatchSize).QueryRow(func(row pgx.Row) error { return row.Scan(skipped) })
}
