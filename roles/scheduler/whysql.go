// Reading why jobs wait, in one snapshot.

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// The jobs ahead are found as the lease loop finds them: by leaping through the
// index from one kind of jobs of the queue to the next, of which only the first
// $3 count, and of kinds $4 beside those of the run itself. So it costs the same
// whatever waits, and tells when that makes the number too small.
const whyJobsSQL = `
WITH RECURSIVE mine AS MATERIALIZED (
  SELECT j.seq, j.queue, j.labels FROM forge.jobs j WHERE j.run_id = $1 AND j.finished_at IS NULL AND j.state = 'queued' ORDER BY j.seq LIMIT $2), kind AS (
  (SELECT j.queue, j.labels FROM forge.jobs j WHERE j.state = 'queued' AND j.queue = (SELECT queue FROM mine LIMIT 1) ORDER BY j.labels LIMIT 1)
  UNION ALL
  SELECT n.queue, n.labels FROM kind k CROSS JOIN LATERAL (
    SELECT j.queue, j.labels FROM forge.jobs j WHERE j.state = 'queued' AND j.queue = k.queue AND j.labels > k.labels ORDER BY j.labels LIMIT 1) n), seen AS MATERIALIZED (
  SELECT queue, labels FROM kind LIMIT $4::bigint + 1), known AS (
  (SELECT queue, labels FROM seen LIMIT $4) UNION SELECT queue, labels FROM mine), first AS MATERIALIZED (
  SELECT h.seq, row_number() OVER (ORDER BY h.priority DESC, h.seq) AS nth
    FROM known k CROSS JOIN LATERAL (
      SELECT j.priority, j.seq FROM forge.jobs j WHERE j.state = 'queued' AND j.queue = k.queue AND j.labels = k.labels
       ORDER BY j.priority DESC, j.seq LIMIT $3) h)
SELECT j.name, j.state, j.labels, j.needs, j.unmet, j.not_before, j.cancel_requested_at IS NOT NULL,
       CASE WHEN j.state <> 'queued' THEN 0 ELSE least(coalesce(first.nth - 1, $3), $3) END,
       j.state = 'queued' AND (first.nth IS NULL OR first.nth > $3 OR (SELECT count(*) > $4 FROM seen)),
       coalesce(l.agent_id, ''), l.accepted_at IS NOT NULL
  FROM forge.jobs j LEFT JOIN forge.leases l ON l.job_id = j.id AND l.state = 'active' LEFT JOIN first ON first.seq = j.seq
 WHERE j.run_id = $1 AND j.finished_at IS NULL ORDER BY j.seq LIMIT $2`

const whyRunSQL = `
SELECT coordination.clock(), r.queue, count(*) FILTER (WHERE j.finished_at IS NULL), array_agg(j.name), array_agg(j.state)
  FROM forge.runs r JOIN forge.jobs j ON j.run_id = r.id WHERE r.id = $1 GROUP BY r.queue`

const whyAgentsSQL = `
SELECT a.id, a.labels, a.slots, held.n, a.link IS NULL OR a.last_seen <= (SELECT coordination.clock()) - $1::interval,
       a.drain_requested_at IS NOT NULL OR a.closing, a.quarantined_at IS NOT NULL, a.quarantine_reason, a.unaccepted > 0
  FROM forge.agents a
 CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active') held
 ORDER BY a.id`

// Other queues are found by leaping from one to the next, as the lease loop does.
const whyQueuesSQL = `
WITH RECURSIVE q AS (
  (SELECT queue FROM forge.jobs WHERE state = 'queued' ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT n.queue FROM q CROSS JOIN LATERAL (SELECT j.queue FROM forge.jobs j WHERE j.state = 'queued' AND j.queue > q.queue ORDER BY j.queue LIMIT 1) n)
SELECT count(*) FROM (SELECT queue FROM q LIMIT 1000) o WHERE queue <> (SELECT queue FROM forge.runs WHERE id = $1)`

// Why tells for each job of a run that has not ended why it does not run.
// access.ErrNotFound when there is no such run.
func Why(ctx context.Context, db Database, role RoleState, run string) (WhyDocument, error) {
	if _, err := ulid.ParseStrict(run); err != nil {
		return WhyDocument{}, access.ErrNoRun.Because("no run %.64q", run)
	}
	s := situation{role: role, states: map[string]string{}}
	var at time.Time
	var queue string
	var open int
	found := false
	err := db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(whyRunSQL, run).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var names, states []string
				if err := rows.Scan(&at, &queue, &open, &names, &states); err != nil {
					return err
				}
				found = true
				for i, n := range names {
					s.states[n] = states[i]
				}
			}
			return rows.Err()
		})
		b.Queue(whyJobsSQL, run, int64(jobsShown), int64(AheadShown), int64(kindsAhead)).Query(func(rows pgx.Rows) (err error) {
			s.jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (j waiting, err error) {
				return j, row.Scan(&j.name, &j.state, &j.labels, &j.needs, &j.unmet, &j.notBefore, &j.cancel, &j.ahead, &j.more, &j.leasedTo, &j.accepted)
			})
			return err
		})
		b.Queue(whyAgentsSQL, defaultAgentTTL).Query(func(rows pgx.Rows) (err error) {
			s.hosts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h host, err error) {
				return h, row.Scan(&h.id, &h.labels, &h.slots, &h.held, &h.away, &h.draining, &h.quarantined, &h.reason, &h.doubted)
			})
			return err
		})
		b.Queue(whyQueuesSQL, run).QueryRow(func(row pgx.Row) error { return row.Scan(&s.queues) })
	})
	switch {
	case err != nil:
		return WhyDocument{}, fmt.Errorf("read why run %s waits: %w", run, err)
	case !found:
		return WhyDocument{}, access.ErrNoRun.Because("no run %q", run)
	}
	return WhyDocument{
		APIVersion: apiVersion, Kind: "Why", Run: run, At: at, Scheduler: role, Jobs: explain(s), More: max(0, open-len(s.jobs)),
	}, nil
}
