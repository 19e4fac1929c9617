// Reading what the next batch may be made of: the heads of the queues and the free agents, in one statement.

package scheduler

import (
	"github.com/jackc/pgx/v5"
)

// Bounds of one reading, which are those of the scheduler's memory too.
const (
	classesRead = 1024 // kinds of jobs, which are (queue, labels), looked at; the next reading goes on after them
	classDepth  = 64   // jobs read of each kind when many are waiting
)

// takesSQL tells whether agent a takes work: it is linked, was heard of lately, and neither drains, stops, nor is quarantined.
const takesSQL = `a.link IS NOT NULL AND a.last_seen > (SELECT coordination.clock()) - $1::interval
   AND a.drain_requested_at IS NULL AND NOT a.closing AND a.quarantined_at IS NULL`

// Capacity is what an agent offers less what it holds. One that takes no work has
// none; one that let its last lease expire unaccepted must prove itself with one.
const freeSQL = `
SELECT a.id, a.labels, CASE WHEN a.unaccepted > 0 THEN 1 ELSE a.slots END - held.n AS free, a.unaccepted > 0 AS doubted
  FROM forge.agents a
 CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active') held
 WHERE ` + takesSQL + ` AND a.slots > held.n`

// leapSQL is the recursive part of the CTE "kind": from one kind of queued jobs to the next.
const leapSQL = `  SELECT n.queue, n.labels FROM kind k CROSS JOIN LATERAL (
    SELECT j.queue, j.labels FROM forge.jobs j WHERE j.state = 'queued' AND (j.queue, j.labels) > (k.queue, k.labels)
     ORDER BY j.queue, j.labels LIMIT 1) n`

// The kinds of queued jobs are found by leaping through the index from one to
// the next, so a million jobs of one kind cost what one costs, and a kind that
// no free agent can run costs one leap. Of each other kind no more jobs are read
// than could be placed, then the queues are dealt out like cards: the first job
// of every queue, the second of every queue, up to $2. With no free agent at all
// nothing is read of the queue.
const windowSQL = `
WITH RECURSIVE free AS MATERIALIZED (` + freeSQL + `), shape AS MATERIALIZED (
  SELECT labels, sum(free) AS free FROM free WHERE free > 0 GROUP BY labels), kind AS (
  (SELECT j.queue, j.labels FROM forge.jobs j
    WHERE EXISTS (SELECT FROM shape) AND j.state = 'queued' AND (j.queue, j.labels) > ($3::text, $4::text[])
    ORDER BY j.queue, j.labels LIMIT 1)
  UNION ALL
` + leapSQL + `), seen AS MATERIALIZED (
  SELECT queue, labels FROM kind LIMIT $5::bigint), able AS MATERIALIZED (
  SELECT k.queue, k.labels, sum(shape.free) AS room FROM seen k JOIN shape ON k.labels <@ shape.labels GROUP BY k.queue, k.labels), depth AS (
  SELECT greatest($6::bigint, least($2::bigint, 4 * $2::bigint / greatest(1, count(*)))) AS n FROM able), head AS (
  SELECT h.id, a.queue, a.labels, h.priority, h.seq, row_number() OVER (PARTITION BY a.queue ORDER BY h.priority DESC, h.seq) AS nth
    FROM able a CROSS JOIN LATERAL (
      SELECT j.id, j.priority, j.seq FROM forge.jobs j
       WHERE j.state = 'queued' AND j.queue = a.queue AND j.labels = a.labels AND j.cancel_requested_at IS NULL AND j.attempt < j.attempt_limit
       ORDER BY j.priority DESC, j.seq LIMIT least(a.room, (SELECT n FROM depth))) h), dealt AS (
  SELECT id, queue, labels, priority, seq, nth, row_number() OVER (ORDER BY nth, queue) AS card FROM head)
SELECT 'agent', id, '', labels, free::int, 0::bigint, doubted FROM free WHERE free > 0
UNION ALL
SELECT 'job', id, queue, labels, priority::int, seq, false FROM dealt WHERE nth = 1 OR card <= $2::bigint
UNION ALL
(SELECT 'more', '', queue, labels, 0, 0::bigint, false FROM seen WHERE (SELECT count(*) FROM seen) >= $5::bigint ORDER BY queue DESC, labels DESC LIMIT 1)`

// place is where in the order of kinds a reading begins; the zero place is before all.
type place struct {
	queue  string
	labels []string
}

func (p place) start() bool { return p.queue == "" }

// queueWindow queues the reading of at most size jobs, and one more of each
// further queue, and of the free agents. w and next are set when it was read.
func (s *Scheduler) queueWindow(b *pgx.Batch, from place, w *window, next *place) {
	if from.labels == nil {
		from.labels = []string{}
	}
	b.Queue(windowSQL, s.cfg.AgentTTL, s.cfg.BatchSize, from.queue, from.labels, classesRead, classDepth).Query(func(rows pgx.Rows) error {
		*w, *next = window{}, place{}
		var kind, id, queue string
		var labels []string
		var n int
		var seq int64
		var doubted bool
		for rows.Next() {
			labels = nil // the slice of the row before is in use
			if err := rows.Scan(&kind, &id, &queue, &labels, &n, &seq, &doubted); err != nil {
				return err
			}
			switch kind {
			case "agent":
				w.agents = append(w.agents, agent{id: id, labels: labels, free: n, doubted: doubted})
			case "job":
				w.jobs = append(w.jobs, job{id: id, queue: queue, labels: labels, priority: n, seq: seq})
			case "more":
				*next = place{queue: queue, labels: labels}
			}
		}
		return rows.Err()
	})
}

// The last leases in the order of their making, which is the order of their ids.
const turnsSQL = `
SELECT last.queue FROM (
  SELECT l.id, j.queue FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id ORDER BY l.id DESC LIMIT $1) last
 ORDER BY last.id`

func queueTurns(b *pgx.Batch, t *turns) {
	b.Queue(turnsSQL, turnsKept).Query(func(rows pgx.Rows) error {
		*t = newTurns()
		var queue string
		_, err := pgx.ForEachRow(rows, []any{&queue}, func() error {
			t.served(queue)
			return nil
		})
		return err
	})
}
