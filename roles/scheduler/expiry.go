// The lease clock and the end of leases: both count only the time in which a scheduler was active (§196).

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgeyard/forgeyard/cluster"
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

// tick keeps the lease clock and, being fenced, notices a lost fence on a quiet scheduler.
func (s *Scheduler) tick(ctx context.Context, g cluster.RoleGuard) (more bool, err error) {
	var lost time.Duration
	err = s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) { advance(b, s.outage(), &lost) })
	if err == nil && lost > 0 {
		s.cfg.Logger.Info("every active lease was extended by the time in which no scheduler was active", "by", lost, "epoch", g.Epoch())
	}
	return false, err
}

// A lease that some agent is just extending or completing is skipped, and
// looked at again next time. The job goes back to its old place in the queue,
// or fails with its last attempt; one whose end was asked for is cancelled.
const expireSQL = `
WITH moment AS MATERIALIZED (SELECT coordination.clock() AS now), over AS (
  SELECT l.id, l.job_id, l.agent_id, l.reason FROM forge.leases l, moment
   WHERE l.state = 'active' AND l.expires_at <= moment.now
   ORDER BY l.id LIMIT $1 FOR UPDATE OF l SKIP LOCKED), ended AS (
  UPDATE forge.leases l SET state = 'expired', ended_at = moment.now,
         reason = CASE WHEN over.reason = '' THEN 'agent ' || over.agent_id || ' did not extend it in time' ELSE over.reason END
    FROM over, moment WHERE l.id = over.id
  RETURNING l.id, l.job_id, l.reason, l.cancel_requested_at IS NOT NULL AS cancelled), voided AS (
  UPDATE forge.dispatch d SET state = 'void' FROM ended WHERE d.lease_id = ended.id AND d.state = 'open')
UPDATE forge.jobs j
   SET state = CASE WHEN ended.cancelled THEN 'cancelled' WHEN j.attempt < j.attempt_limit THEN 'queued' ELSE 'failed' END,
       reason = CASE WHEN ended.cancelled THEN 'cancelled: ' || ended.reason WHEN j.attempt < j.attempt_limit THEN ''
                     ELSE 'attempt ' || j.attempt || ' of ' || j.attempt_limit || ': ' || ended.reason END,
       finished_at = CASE WHEN j.attempt < j.attempt_limit AND NOT ended.cancelled THEN NULL ELSE moment.now END
  FROM ended, moment WHERE j.id = ended.job_id AND j.state = 'leased'`

// expire ends up to BatchSize leases whose time is over. The clock is advanced
// first in the same transaction, or the first look after an outage would end
// every lease that could not be extended during it.
func (s *Scheduler) expire(ctx context.Context, g cluster.RoleGuard) (more bool, err error) {
	var lost time.Duration
	var n int64
	err = s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		advance(b, s.outage(), &lost)
		b.Queue(expireSQL, s.cfg.BatchSize).Exec(affected(&n))
	})
	if err != nil {
		return false, fmt.Errorf("end leases: %w", err)
	}
	if n > 0 {
		s.cfg.Logger.Info("ended leases whose time was over", "leases", n, "epoch", g.Epoch())
		s.leases.ring()
	}
	return n == int64(s.cfg.BatchSize), nil
}

func affected(n *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = tag.RowsAffected()
		return nil
	}
}
