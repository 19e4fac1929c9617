// What a new SchedulerLeader does before it leases anything (§85, §88, §244).

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

// What becomes of an order that somebody else holds.
const (
	awaitHeld = ``             // reconciliation: no order of an older epoch may be left
	passHeld  = ` SKIP LOCKED` // upkeep, which holds agents: it comes back for the order
)

// restampSQL: orders that nobody has delivered must carry the current epoch, or
// agents that have seen it refuse them. Locked in lease order; daemons skip a
// row that is being stamped.
func restampSQL(held string) string {
	return `
WITH stale AS (
  SELECT d.lease_id FROM forge.dispatch d
   WHERE d.state = 'open' AND (d.generation, d.epoch) <> (coordination.fenced_generation(), coordination.fenced_epoch())
   ORDER BY d.lease_id FOR UPDATE` + held + `)
UPDATE forge.dispatch d SET epoch = coordination.fenced_epoch(), generation = coordination.fenced_generation()
  FROM stale WHERE d.lease_id = stale.lease_id`
}

// voidSQL: an open order whose lease has ended is nobody's to deliver.
func voidSQL(held string) string {
	return `
WITH dead AS (
  SELECT d.lease_id FROM forge.dispatch d
   WHERE d.state = 'open' AND (SELECT l.state FROM forge.leases l WHERE l.id = d.lease_id) <> 'active'
   ORDER BY d.lease_id FOR UPDATE` + held + `)
UPDATE forge.dispatch d SET state = 'void' FROM dead WHERE d.lease_id = dead.lease_id`
}

// Queued jobs are counted kind by kind, up to $2 of each: a million of them must
// not delay the first lease, also when the planner knows nothing of the table yet.
const scanSQL = `
WITH RECURSIVE kind AS (
  (SELECT j.queue, j.labels FROM forge.jobs j WHERE j.state = 'queued' AND (j.queue, j.labels) > ('', '{}'::text[])
    ORDER BY j.queue, j.labels LIMIT 1)
  UNION ALL
` + leapSQL + `), counted AS (
  SELECT c.n FROM (SELECT queue, labels FROM kind LIMIT $3) k CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
      SELECT FROM forge.jobs j WHERE j.state = 'queued' AND j.queue = k.queue AND j.labels = k.labels
       ORDER BY j.priority DESC, j.seq LIMIT $2) head) c)
SELECT (SELECT coalesce(sum(n), 0)::bigint FROM counted), (SELECT count(*) = $3 OR coalesce(max(n), 0) = $2 FROM counted),
       (SELECT count(*) FROM forge.leases WHERE state = 'active'),
       (SELECT count(*) FROM forge.leases WHERE state = 'active' AND accepted_at IS NULL),
       (SELECT count(*) FROM forge.dispatch WHERE state = 'open'),
       (SELECT count(*) FROM forge.agents a WHERE ` + takesSQL + `)`

// Scan is what reconciliation found.
type Scan struct {
	Eligible int           // queued jobs
	More     bool          // there may be more: the count is bounded
	Active   int           // active leases
	Reserved int           // of these, reservations: a slot is held for a job that its agent has not accepted yet
	Orders   int           // orders not yet delivered
	Agents   int           // agents that can take work now
	Outage   time.Duration // scheduler-less time that was given back to every active lease
	Restamp  int           // orders that now carry this epoch
	Void     int           // orders whose lease had ended
}

// scanned is how many queued jobs of each kind reconciliation counts.
const scanned = 256

func (s Scan) String() string {
	more := ""
	if s.More {
		more = " or more"
	}
	return fmt.Sprintf("%d%s jobs queued, %d leases active (%d not accepted yet; extended by %s), %d orders open (%d re-stamped, %d void), %d agents linked",
		s.Eligible, more, s.Active, s.Reserved, s.Outage.Round(time.Millisecond), s.Orders, s.Restamp, s.Void, s.Agents)
}

// Reconcile runs with the fence raised and before any loop.
func (s *Scheduler) Reconcile(ctx context.Context, g cluster.RoleGuard) (string, error) {
	found, err := s.Recover(ctx, g)
	if err != nil {
		return "", err
	}
	s.cfg.Dispatched()
	s.Wake()
	return found.String(), nil
}

// Recover gives back the time of the outage first, then makes open orders its
// own, then scans: eligible jobs, active leases, open orders, agents. All in
// one fenced transaction, so that a leader which dies here leaves all or nothing.
// Whose turn it is and the first window of the queue are read with it, so that
// the first batch is planned when it returns (§84).
func (s *Scheduler) Recover(ctx context.Context, g cluster.RoleGuard) (Scan, error) {
	l := s.ledgerOf(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	var r recovery
	if err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) { s.queueRecovery(b, &r) }); err != nil {
		return Scan{}, fmt.Errorf("reconcile: %w", err)
	}
	l.turns, l.known, l.from = r.turns, true, r.next
	l.picks = plan(r.window, r.turns, s.cfg.BatchSize)
	r.found.Restamp, r.found.Void = int(r.restamped), int(r.voided)
	return r.found, nil
}

// recovery is what the transaction of Recover reads and writes.
type recovery struct {
	found             Scan
	restamped, voided int64
	turns             turns
	window            window
	next              place
}

func (s *Scheduler) queueRecovery(b *pgx.Batch, r *recovery) {
	advance(b, 0, &r.found.Outage)
	b.Queue(voidSQL(awaitHeld)).Exec(affected(&r.voided))
	b.Queue(restampSQL(awaitHeld)).Exec(affected(&r.restamped))
	b.Queue(scanSQL, s.cfg.AgentTTL, int64(scanned), int64(classesRead)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.found.Eligible, &r.found.More, &r.found.Active, &r.found.Reserved, &r.found.Orders, &r.found.Agents)
	})
	s.queueReady(b)
	queueTurns(b, &r.turns)
	s.queueWindow(b, place{}, &r.window, &r.next)
}

// Statements are those from the first one of an epoch to its first lease, for
// sessions that are to know them before they are needed (store.Config.Warm).
func Statements() (sql []string) {
	s, b := New(Config{}), &pgx.Batch{}
	s.queueRecovery(b, &recovery{})
	s.queueLeases(b, nil, nil, nil)
	for _, q := range b.QueuedQueries {
		sql = append(sql, q.SQL)
	}
	return sql
}
