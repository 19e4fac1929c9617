// The lease clock and the end of leases: both count only the time in which a scheduler was active (§196).

package scheduler

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// advanceSQL moves the tick to now. When more than $1 has passed since the last
// one no scheduler was active in between, and that time, exactly, is given back
// to every active lease: heartbeats may have had nowhere to go, and nothing
// could tell a dead agent from an unheard one. Both happen in one statement, so
// no time is given back twice. A clock that went backwards gives nothing.
// Leases are locked in id order, as everywhere.
const advanceSQL = `
WITH moment AS MATERIALIZED (
  SELECT t.at, coordination.clock() AS now FROM forge.tick t FOR UPDATE), gap AS (
  SELECT now, CASE WHEN now - at > $1::interval THEN now - at ELSE interval '0' END AS lost FROM moment), held AS (
  SELECT l.id FROM forge.leases l, gap WHERE l.state = 'active' AND gap.lost > interval '0' ORDER BY l.id FOR NO KEY UPDATE OF l), moved AS (
  UPDATE forge.leases l SET expires_at = l.expires_at + gap.lost FROM gap, held WHERE l.id = held.id), ticked AS (
  UPDATE forge.tick SET at = gap.now, epoch = coordination.fenced_epoch(), generation = coordination.fenced_generation() FROM gap)
SELECT lost FROM gap`

// outage is the gap between two ticks that counts as "no scheduler was active".
// Reconciliation uses 0: between two epochs none was.
func (s *Scheduler) outage() time.Duration { return 3 * s.cfg.Tick }

// advance queues advanceSQL; it must come first in its transaction.
func advance(b *pgx.Batch, longer time.Duration, lost *time.Duration) {
	b.Queue(advanceSQL, longer).QueryRow(func(row pgx.Row) error { return row.Scan(lost) })
}

// A lease that some agent is just extending or completing is skipped, and
// looked at again next time. The job goes back to its old place in the queue,
// or fails with its last attempt, and then what needs it never runs; one whose
// end was asked for is cancelled. A job that another transaction holds, or one
// of whose dependents it holds, comes in a later round with its lease: upkeep
// waits for nobody. The orders of these leases are voided after it.
//
// An agent that was heard of after leases were offered to it, and yet let them
// expire without having accepted one, has a dead work loop: the third time in a
// row it is quarantined. Rounds are counted, not leases: what was offered before
// the last round was counted belongs to it, however its leases end. An acceptance
// starts the count again.
const expireSQL = `
WITH moment AS MATERIALIZED (SELECT coordination.clock() AS now), over AS MATERIALIZED (
  SELECT l.id, l.job_id, l.agent_id, l.reason, l.accepted_at IS NULL AS unaccepted, l.cancel_requested_at IS NOT NULL AS cancelled
    FROM forge.leases l, moment
   WHERE l.state = 'active' AND l.expires_at <= moment.now
   ORDER BY l.id LIMIT $1 FOR UPDATE OF l SKIP LOCKED), cause AS MATERIALIZED (
  SELECT j.id, j.run_id, j.name, over.id AS lease, v.state, j.needed AND v.state <> 'queued' AS needed
    FROM over JOIN forge.jobs j ON j.id = over.job_id
   CROSS JOIN LATERAL (SELECT CASE WHEN over.cancelled OR j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                                   WHEN j.attempt < j.attempt_limit THEN 'queued' ELSE 'failed' END AS state) v
     FOR NO KEY UPDATE OF j SKIP LOCKED)` + dependentsSQL + `, lapsed AS (
  UPDATE forge.leases l SET state = 'expired', ended_at = moment.now,
         reason = CASE WHEN over.reason = '' THEN 'agent ' || over.agent_id || ' did not extend it in time' ELSE over.reason END
    FROM over JOIN cause ON cause.lease = over.id JOIN free ON free.id = cause.id, moment WHERE l.id = over.id
  RETURNING l.id, l.agent_id, l.leased_at, l.reason, over.unaccepted AND NOT over.cancelled AS ignored), ended AS (
  UPDATE forge.jobs j SET state = c.state,
         reason = CASE WHEN c.state = 'queued' THEN ''
                       WHEN c.state = 'cancelled' THEN CASE j.reason WHEN '' THEN 'cancelled' ELSE j.reason END || ': ' || lapsed.reason
                       ELSE 'attempt ' || j.attempt || ' of ' || j.attempt_limit || ': ' || lapsed.reason END,
         queued_at = CASE c.state WHEN 'queued' THEN moment.now ELSE j.queued_at END,
         finished_at = CASE c.state WHEN 'queued' THEN NULL ELSE moment.now END
    FROM lapsed JOIN cause c ON c.lease = lapsed.id, moment WHERE j.id = c.id AND j.state = 'leased'
  RETURNING j.id, j.state), doubted AS (
  SELECT a.id FROM forge.agents a, moment
   WHERE a.id IN (SELECT agent_id FROM lapsed WHERE ignored)
     AND a.link IS NOT NULL AND a.last_seen > moment.now - $2::interval
     AND EXISTS (SELECT FROM lapsed o WHERE o.agent_id = a.id AND o.ignored AND o.leased_at < a.last_seen AND (a.doubted_at IS NULL OR o.leased_at > a.doubted_at))
   ORDER BY a.id FOR NO KEY UPDATE OF a SKIP LOCKED), counted AS (
  UPDATE forge.agents a SET unaccepted = least(a.unaccepted + 1, 1000), doubted_at = moment.now,
         quarantined_at = CASE WHEN a.unaccepted + 1 >= $3::int THEN coalesce(a.quarantined_at, moment.now) ELSE a.quarantined_at END,
         quarantine_reason = CASE WHEN a.unaccepted + 1 >= $3::int AND a.quarantined_at IS NULL
           THEN 'it accepted none of the last ' || (a.unaccepted + 1) || ' leases offered to it before they expired' ELSE a.quarantine_reason END
    FROM doubted, moment WHERE a.id = doubted.id
  RETURNING a.id, a.unaccepted)` + doomSQL + `
SELECT (SELECT count(*) FROM ended), (SELECT count(*) FROM lapsed), (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM counted WHERE unaccepted = $3::int)`

// unacceptedLimit is after how many rounds of unaccepted leases in a row an agent is quarantined.
const unacceptedLimit = 3

// expired is what a round of expiry did.
type expired struct {
	requeued    int64    // jobs, or ended
	leases      int64    // that were ended
	quarantined []string // agents
}

// queueExpiry ends up to BatchSize leases whose time is over. The lease clock
// must be advanced before it in the same transaction, or the first look after an
// outage would end every lease that could not be extended during it.
func (s *Scheduler) queueExpiry(b *pgx.Batch, e *expired) {
	b.Queue(expireSQL, s.cfg.BatchSize, s.cfg.AgentTTL, unacceptedLimit).QueryRow(func(row pgx.Row) error {
		return row.Scan(&e.requeued, &e.leases, &e.quarantined)
	})
}

func affected(n *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = tag.RowsAffected()
		return nil
	}
}
