// Making leases: read what is queued and who is free, plan, write the batch.

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

// Capacity is what an agent offers less what it holds. An agent without a link,
// or not heard of for too long, has none.
const freeSQL = `
SELECT a.id, a.labels, a.slots - held.n AS free
  FROM forge.agents a
 CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active') held
 WHERE a.link IS NOT NULL AND a.last_seen > (SELECT coordination.clock()) - $1::interval AND a.slots > held.n
 ORDER BY a.id`

// The order of the queue is (priority, seq) and nothing else, so that every
// leader sees the same one (§249). Jobs that no free agent can run are left out
// here, or a block of them at the head would hide the rest behind the limit.
// With no free agent at all the first condition, which depends on no row, keeps
// the queue from being read.
const queueSQL = `
WITH free AS (
  SELECT a.labels
    FROM forge.agents a
   WHERE a.link IS NOT NULL AND a.last_seen > (SELECT coordination.clock()) - $1::interval
     AND a.slots > (SELECT count(*) FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active'))
SELECT j.id, j.labels FROM forge.jobs j
 WHERE EXISTS (SELECT FROM free) AND j.state = 'queued' AND EXISTS (SELECT FROM free WHERE j.labels <@ free.labels)
 ORDER BY j.priority DESC, j.seq LIMIT $2`

// A job that stopped being queued since it was read, and one whose row another
// transaction holds, is skipped. Attempt, lease and order change together or
// not at all; epoch and generation are the fence's by default (§92).
const leaseSQL = `
WITH picked AS (
  SELECT j.id, p.agent
    FROM unnest($1::text[], $2::text[]) AS p(job, agent) JOIN forge.jobs j ON j.id = p.job
   WHERE j.state = 'queued' AND j.attempt < j.attempt_limit
     FOR UPDATE OF j SKIP LOCKED), taken AS (
  UPDATE forge.jobs j SET state = 'leased', attempt = j.attempt + 1
    FROM picked WHERE j.id = picked.id
  RETURNING j.id, j.attempt, picked.agent), made AS (
  INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at)
  SELECT id, attempt, agent, coordination.clock() + $3::interval FROM taken
  RETURNING id, agent_id)
INSERT INTO forge.dispatch (lease_id, agent_id) SELECT id, agent_id FROM made`

// LeaseBatch leases up to BatchSize queued jobs, oldest of the highest priority
// first, to agents with free capacity, and returns how many. It is the only way
// to create a lease (§299, §300): both of its transactions are fenced by the
// guard, and PostgreSQL alone decides (§38, §289); nothing is proposed to the
// cluster per job. On an error of either kind no lease was made, or the guard
// is revoked and the outcome unknown.
func (s *Scheduler) LeaseBatch(ctx context.Context, g cluster.RoleGuard) (int, error) {
	var agents []agent
	var jobs []job
	err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		b.Queue(freeSQL, s.cfg.AgentTTL).Query(func(rows pgx.Rows) (err error) {
			agents, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a agent, err error) {
				return a, row.Scan(&a.id, &a.labels, &a.free)
			})
			return err
		})
		b.Queue(queueSQL, s.cfg.AgentTTL, s.cfg.BatchSize).Query(func(rows pgx.Rows) (err error) {
			jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job, err error) {
				return j, row.Scan(&j.id, &j.labels)
			})
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("read the queue: %w", err)
	}
	picks := plan(jobs, agents)
	if len(picks) == 0 {
		return 0, nil
	}
	n, err := s.write(ctx, g, picks)
	if err != nil {
		return 0, fmt.Errorf("lease %d jobs: %w", len(picks), err)
	}
	return n, nil
}

// write makes the leases of a plan in one fenced round trip.
func (s *Scheduler) write(ctx context.Context, g cluster.RoleGuard, picks []pick) (int, error) {
	jobs, agents := make([]string, len(picks)), make([]string, len(picks))
	for i, p := range picks {
		jobs[i], agents[i] = p.job, p.agent
	}
	var n int64
	err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		b.Queue(leaseSQL, jobs, agents, s.cfg.LeaseTTL).Exec(affected(&n))
	})
	return int(n), err
}

func (s *Scheduler) lease(ctx context.Context, g cluster.RoleGuard) (more bool, err error) {
	began := time.Now()
	n, err := s.LeaseBatch(ctx, g)
	if err != nil || n == 0 {
		return false, err
	}
	s.cfg.Dispatched() // only now: before the commit was known, nothing may act on it
	s.cfg.Logger.Debug("leased", "leases", n, "epoch", g.Epoch(), "took", time.Since(began))
	return true, nil
}
