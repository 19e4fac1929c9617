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

// doomSQL goes on in a statement whose CTE "ended" returns jobs that ended without
// success: what needs them never runs. The dependents are locked in id order.
const doomSQL = `, dependents AS (
  SELECT d.id FROM forge.jobs d
    JOIN (SELECT DISTINCT run_id, name FROM ended WHERE needed AND state <> 'queued') e ON d.run_id = e.run_id AND e.name = ANY (d.needs)
   WHERE d.state = 'blocked' AND d.unmet >= 0 AND d.cancel_requested_at IS NULL
   ORDER BY d.id FOR NO KEY UPDATE OF d), doomed AS (
  UPDATE forge.jobs d SET unmet = -1 FROM dependents WHERE d.id = dependents.id AND d.state = 'blocked')`

// A cancelled job that nobody has leased. Its dependents are doomed, but for
// those that are to be cancelled too.
const cancelSQL = `
WITH asked AS (
  SELECT id FROM forge.jobs
   WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL AND state <> 'leased'
   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED), ended AS (
  UPDATE forge.jobs j SET state = 'cancelled', finished_at = coordination.clock(), not_before = NULL,
         reason = CASE WHEN j.reason = '' THEN 'cancelled before it was leased' ELSE j.reason END
    FROM asked WHERE j.id = asked.id AND j.state IN ('blocked', 'queued', 'backoff')
  RETURNING j.run_id, j.name, j.needed, j.state)` + doomSQL + `
SELECT count(*) FROM ended`

// A job that needs one which will never succeed. It dooms what needs it, one
// step along the needs each time.
const skipSQL = `
WITH hopeless AS (
  SELECT id FROM forge.jobs WHERE state = 'blocked' AND unmet < 0 AND cancel_requested_at IS NULL
   ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED), ended AS (
  UPDATE forge.jobs j SET state = 'skipped', finished_at = coordination.clock(),
         reason = coalesce((SELECT 'needs ' || n.name || ', which is ' || n.state FROM forge.jobs n
            WHERE n.run_id = j.run_id AND n.name = ANY (j.needs) AND n.state IN ('failed', 'cancelled', 'skipped') ORDER BY n.seq LIMIT 1),
           'needs a job that did not succeed')
    FROM hopeless WHERE j.id = hopeless.id AND j.state = 'blocked'
  RETURNING j.run_id, j.name, j.needed, j.state)` + doomSQL + `
SELECT count(*) FROM ended`

// queueSettled queues the ends of jobs that nobody has leased, and counts them.
func (s *Scheduler) queueSettled(b *pgx.Batch, cancelled, skipped *int64) {
	b.Queue(cancelSQL, s.cfg.BatchSize).QueryRow(func(row pgx.Row) error { return row.Scan(cancelled) })
	b.Queue(skipSQL, s.cfg.BatchSize).QueryRow(func(row pgx.Row) error { return row.Scan(skipped) })
}
