// Making leases: each fenced round trip writes the planned batch and reads what the next one is planned from.

package scheduler

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

// The plan may be older than this transaction, so nothing of it is trusted: an
// agent takes what it has room for now, if it may take anything; a job that
// stopped being queued, was cancelled or asks for labels that the agent no
// longer carries, and one whose row another transaction holds, is skipped. A
// stale plan so makes fewer leases, never wrong ones. Attempt, lease and order
// change together or not at all; epoch and generation are the fence's by default (§92).
// The state is not compared by "=", or the planner may take the index of the queue for that of the id.
const leaseSQL = `
WITH offered AS MATERIALIZED (
  SELECT o.job, o.agent, o.lease, o.n, row_number() OVER (PARTITION BY o.agent ORDER BY o.n) AS nth
    FROM unnest($2::text[], $3::text[], $4::uuid[]) WITH ORDINALITY AS o(job, agent, lease, n)), room AS MATERIALIZED (
  SELECT f.id, f.labels, f.free FROM (` + freeSQL + ` AND a.id = ANY ($3)) f), picked AS (
  SELECT j.id, o.agent, o.lease, o.n
    FROM offered o JOIN room r ON r.id = o.agent AND o.nth <= r.free JOIN forge.jobs j ON j.id = o.job
   WHERE j.state IS NOT DISTINCT FROM 'queued' AND j.attempt < j.attempt_limit AND j.cancel_requested_at IS NULL AND j.labels <@ r.labels
     FOR UPDATE OF j SKIP LOCKED), taken AS (
  UPDATE forge.jobs j SET state = 'leased', attempt = j.attempt + 1
    FROM picked p WHERE j.id = p.id
  RETURNING j.id, j.attempt, p.agent, p.lease, p.n), made AS (
  INSERT INTO forge.leases (id, job_id, attempt, agent_id, expires_at)
  SELECT lease, id, attempt, agent, coordination.clock() + $5::interval FROM taken
  RETURNING id, agent_id), ordered AS (
  INSERT INTO forge.dispatch (lease_id, agent_id) SELECT id, agent_id FROM made)
SELECT n FROM taken ORDER BY n`

// ledger is what one epoch keeps between two round trips. It holds at most one
// window, and is never a fact: the next round trip verifies it.
type ledger struct {
	generation, epoch uint64

	mu     sync.Mutex // one batch at a time
	known  bool       // turns were read
	turns  turns
	picks  []pick // the plan of the next batch
	from   place  // where the next reading begins
	lastID uint64 // counts the lease ids of this epoch
}

// ledgerOf returns the ledger of the guard's epoch: a new one for a new epoch,
// one of its own for an epoch that has passed, whose guard is refused anyway.
func (s *Scheduler) ledgerOf(g cluster.RoleGuard) *ledger {
	generation, epoch := uint64(g.Generation()), uint64(g.Epoch())
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledger
	switch {
	case l != nil && l.generation == generation && l.epoch == epoch:
		return l
	case l != nil && (generation < l.generation || generation == l.generation && epoch < l.epoch):
		return &ledger{generation: generation, epoch: epoch}
	}
	s.ledger = &ledger{generation: generation, epoch: epoch}
	return s.ledger
}

// LeaseBatch leases up to BatchSize queued jobs to agents with free capacity
// and returns how many; plan tells in which order. It is the only way to create
// a lease (§299, §300): its transactions are fenced by the guard, and PostgreSQL
// alone decides (§38, §289); nothing is proposed to the cluster per job.
//
// One batch is one fenced round trip, which also reads what the next one is
// planned from. Only when nothing was left to plan, a reading comes first. On an
// error no lease was made, or the guard is revoked and the outcome unknown.
func (s *Scheduler) LeaseBatch(ctx context.Context, g cluster.RoleGuard) (int, error) {
	if s.cfg.Hold() != "" {
		return 0, nil
	}
	l := s.ledgerOf(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.picks) == 0 {
		if _, err := s.trip(ctx, g, l); err != nil {
			return 0, fmt.Errorf("read the queue: %w", err)
		}
	}
	for range 2 { // a plan of which nothing stood was outdated; the one after it is fresh
		if len(l.picks) == 0 {
			return 0, nil
		}
		began := time.Now()
		n, err := s.trip(ctx, g, l)
		if err != nil {
			return 0, fmt.Errorf("lease jobs: %w", err)
		}
		if n > 0 {
			s.meter.batch(n, time.Since(began))
			return n, nil
		}
	}
	return 0, nil
}

// trip is one fenced transaction and round trip: it writes the planned leases,
// queues the jobs whose time has come, reads the next window, and plans.
func (s *Scheduler) trip(ctx context.Context, g cluster.RoleGuard, l *ledger) (int, error) {
	picks := l.picks
	l.picks = nil // whatever comes, they are used up
	var made []int
	var w window
	var next place
	history := l.turns
	err := s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		if len(picks) > 0 {
			s.queueLeases(b, l.ids(len(picks)), picks, &made)
		}
		s.queueReady(b)
		if !l.known {
			queueTurns(b, &history)
		}
		s.queueWindow(b, l.from, &w, &next)
	})
	if err != nil {
		return 0, err
	}
	if !l.known {
		l.turns, l.known = history, true
	} else {
		for _, i := range made {
			l.turns.served(picks[i-1].queue)
		}
	}
	l.from, l.picks = next, plan(w, l.turns, s.cfg.BatchSize)
	return len(made), nil
}

func (s *Scheduler) queueLeases(b *pgx.Batch, ids [][16]byte, picks []pick, made *[]int) {
	jobs, agents := make([]string, len(picks)), make([]string, len(picks))
	for i, p := range picks {
		jobs[i], agents[i] = p.job, p.agent
	}
	b.Queue(leaseSQL, s.cfg.AgentTTL, jobs, agents, ids, s.cfg.LeaseTTL).Query(func(rows pgx.Rows) (err error) {
		*made, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
}

// ids makes lease ids that rise in the order of making, over all epochs of a
// generation: the epoch, a count within it, and 32 random bits against what an
// older generation may have made. In that order the leases tell whose turn it
// is, and their indexes grow at one end. Their form is that of UUID version 8.
func (l *ledger) ids(n int) [][16]byte {
	salt := make([]byte, 4*n)
	_, _ = rand.Read(salt) // never fails
	ids := make([][16]byte, n)
	for i := range ids {
		l.lastID++
		id := &ids[i]
		binary.BigEndian.PutUint64(id[:8], l.epoch<<16)
		binary.BigEndian.PutUint16(id[6:8], uint16(8<<12|l.lastID>>30&0xfff))
		binary.BigEndian.PutUint32(id[8:12], uint32(2<<30|l.lastID&(1<<30-1)))
		copy(id[12:], salt[4*i:])
	}
	return ids
}

// lease is the loop's step: a batch, and at once the next one as long as there is one planned.
func (s *Scheduler) lease(ctx context.Context, g cluster.RoleGuard) (time.Duration, error) {
	if s.cfg.Hold() != "" {
		return s.cfg.Tick, nil
	}
	began := time.Now()
	n, err := s.LeaseBatch(ctx, g)
	if err != nil {
		return 0, err
	}
	if n > 0 {
		s.cfg.Dispatched() // only now: before the commit was known, nothing may act on it
		s.cfg.Logger.Debug("leased", "leases", n, "epoch", g.Epoch(), "took", time.Since(began))
	}
	l := s.ledgerOf(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.picks) > 0 && n == 0:
		return s.cfg.Tick / 10, nil // somebody holds the rows that are planned: no reason to hurry
	case l.pending():
		return 0, nil
	}
	return s.quiet(), nil
}

// pending reports whether there is a plan, or a part of the queue that this round has not looked at.
// The caller holds mu.
func (l *ledger) pending() bool {
	return len(l.picks) > 0 || !l.from.start()
}

// quiet is how long the lease loop waits without being woken. The upkeep looks
// every tick whether there is something for it; this is for a lost wake-up.
func (s *Scheduler) quiet() time.Duration { return 30 * s.cfg.Tick }
