// The SQL of agent sessions: runner-owned columns only, always under the row lock and the agent's certificate id.

package runner

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const registerSQL = `
INSERT INTO forge.agents AS a (id, session, link, node, slots, labels, build)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET session = EXCLUDED.session, link = EXCLUDED.link, node = EXCLUDED.node,
  slots = EXCLUDED.slots, labels = EXCLUDED.labels, build = EXCLUDED.build, last_seen = coordination.clock()`

// A lease that this same agent process accepted but does not know of lost its
// Start on the way: its order is opened again. A lease that another process of
// the agent accepted is left to run out, unless that agent's journal gives it up.
const reopenSQL = `
UPDATE forge.dispatch d SET state = 'open', claimed_by = NULL, claimed_at = NULL
  FROM forge.leases l
 WHERE l.agent_id = $1 AND l.state = 'active' AND l.session = $2 AND l.id <> ALL ($3::text[]::uuid[])
   AND d.lease_id = l.id AND d.state = 'delivered'`

const keepSQL = `SELECT id::text FROM forge.leases WHERE agent_id = $1 AND state = 'active' AND id = ANY ($2::text[]::uuid[])`

// record writes the link down and answers from the database's truth.
func (s *Sessions) record(ctx context.Context, l *session, h Hello) (Welcome, error) {
	w := Welcome{Node: s.cfg.Node, Link: l.id, TTL: s.cfg.Timing.LeaseTTL, Every: s.cfg.Timing.Heartbeat}
	for _, id := range h.Known {
		if !validLease(id) {
			return w, &protocolError{what: "a known lease is no lease id"}
		}
	}
	known, labels := h.Known, h.Labels
	if known == nil {
		known = []string{}
	}
	if labels == nil {
		labels = []string{}
	}
	err := s.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(registerSQL, l.agent, h.Session, l.id, s.cfg.Node, h.Slots, labels, h.Build)
		b.Queue(reopenSQL, l.agent, h.Session, known)
		b.Queue(keepSQL, l.agent, known).Query(collect(&w.Keep))
	})
	return w, err
}

func queueUnlink(b *pgx.Batch, agent, link string) {
	b.Queue(`UPDATE forge.agents SET link = NULL, node = NULL WHERE id = $1 AND link = $2`, agent, link)
}

// The epoch is read by the statement that claims the row: a row that a new
// leader is re-stamping is either skipped or read with the new epoch. SKIP
// LOCKED also keeps this from waiting, and so from deadlocks. The join on the
// link keeps a daemon that does not yet know that its agent has moved from
// claiming anything.
const claimSQL = `
WITH taken AS (
  SELECT d.lease_id, a.link
    FROM unnest($1::text[], $2::text[]) AS mine(agent, link)
    JOIN forge.agents a ON a.id = mine.agent AND a.link = mine.link
    JOIN forge.dispatch d ON d.agent_id = a.id AND d.state = 'open'
   WHERE d.claimed_by IS DISTINCT FROM a.link OR d.claimed_at < (SELECT coordination.clock()) - $3::interval
     FOR UPDATE OF d SKIP LOCKED)
UPDATE forge.dispatch d SET claimed_by = taken.link, claimed_at = coordination.clock()
  FROM taken, forge.leases l, forge.jobs j
 WHERE d.lease_id = taken.lease_id AND l.id = d.lease_id AND l.state = 'active' AND j.id = l.job_id
RETURNING d.agent_id, d.lease_id::text, d.generation, d.epoch, j.run_id, j.id, l.attempt, j.steps, j.env, j.timeout_ms`

func queueClaims(b *pgx.Batch, agents, links []string, again time.Duration, out *[]addressed) {
	b.Queue(claimSQL, agents, links, again).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o := &Offer{Role: fsm.SchedulerLeader}
			var agent string
			var timeout int64
			if err := rows.Scan(&agent, &o.Lease, &o.Generation, &o.Epoch, &o.Run, &o.Job, &o.Attempt, &o.Steps, &o.Env, &timeout); err != nil {
				return err
			}
			o.Timeout = time.Duration(timeout) * time.Millisecond
			*out = append(*out, addressed{agent: agent, message: Message{Offer: o}})
		}
		return rows.Err()
	})
}

func queueCancels(b *pgx.Batch, agents []string, out *[]addressed) {
	const cancelsSQL = `SELECT agent_id, id::text FROM forge.leases
 WHERE agent_id = ANY ($1) AND state = 'active' AND cancel_requested_at IS NOT NULL AND accepted_at IS NOT NULL`
	b.Queue(cancelsSQL, agents).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var agent, lease string
			if err := rows.Scan(&agent, &lease); err != nil {
				return err
			}
			*out = append(*out, addressed{agent: agent, message: Message{Cancel: &Cancel{Lease: lease}}})
		}
		return rows.Err()
	})
}

// CancelLease asks for the end of one active lease (§116: by lease id, so a
// later attempt of the job is never hit). It reports whether the lease was active.
func CancelLease(ctx context.Context, db Database, lease string) (bool, error) {
	if !validLease(lease) {
		return false, nil
	}
	var n int64
	err := db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(`UPDATE forge.leases SET cancel_requested_at = coalesce(cancel_requested_at, coordination.clock())
 WHERE id = $1::text::uuid AND state = 'active'`, lease).Exec(affected(&n))
	})
	return n == 1, err
}

// work is one transaction of a session: what it writes and what it will answer.
type work struct {
	agent, link string
	timing      Timing
	answers     []Message
	freed       bool // a slot became free
	replaced    bool // the agent has a newer link, here or elsewhere
}

func (w *work) answer(m Message) { w.answers = append(w.answers, m) }

func (w *work) queueLocks(b *pgx.Batch, leases []string) {
	if len(leases) > 0 {
		b.Queue(`SELECT FROM forge.leases WHERE id = ANY ($1::text[]::uuid[]) AND agent_id = $2 ORDER BY id FOR NO KEY UPDATE`, leases, w.agent)
	}
}

func (w *work) queue(b *pgx.Batch, m Message) {
	switch {
	case m.Answer != nil:
		w.queueAnswer(b, *m.Answer)
	case m.Beat != nil:
		w.queueBeat(b, *m.Beat)
	case m.Complete != nil:
		w.queueComplete(b, *m.Complete)
	case m.Release != nil:
		w.queueRelease(b, *m.Release)
	}
}

// A lease is accepted by one process of its agent and by no other, not even in
// the moment in which the agent's link moves and both processes hold the order.
const acceptSQL = `
WITH mine AS (
  UPDATE forge.leases l SET session = a.session, accepted_at = coalesce(accepted_at, coordination.clock()),
         heartbeat_at = coordination.clock(), expires_at = greatest(expires_at, coordination.clock() + $4::interval)
    FROM forge.agents a
   WHERE l.id = $1::text::uuid AND l.agent_id = $2 AND l.state = 'active' AND a.id = l.agent_id AND a.link = $3
     AND (l.session IS NULL OR l.session = a.session)
  RETURNING l.id), sent AS (
  UPDATE forge.dispatch d SET state = 'delivered', delivered_at = coordination.clock()
    FROM mine WHERE d.lease_id = mine.id AND d.state = 'open')
SELECT id::text FROM mine`

// queueAnswer makes an accepted lease the agent process's own for a full time
// before it may start, or puts a refused order back.
func (w *work) queueAnswer(b *pgx.Batch, a Answer) {
	switch a.Verdict {
	case Accepted:
		b.Queue(acceptSQL, a.Lease, w.agent, w.link, w.timing.LeaseTTL).Query(func(rows pgx.Rows) error {
			granted := rows.Next()
			rows.Close()
			w.answer(Message{Start: &Start{Lease: a.Lease, Granted: granted}})
			return rows.Err()
		})
	case Reread:
		b.Queue(`UPDATE forge.dispatch SET claimed_by = NULL, claimed_at = NULL
 WHERE lease_id = $1::text::uuid AND agent_id = $2 AND state = 'open' AND claimed_by = $3`, a.Lease, w.agent, w.link)
	}
}

const beatSQL = `
UPDATE forge.leases l SET heartbeat_at = coordination.clock(), progress = greatest(l.progress, p.bytes),
       expires_at = greatest(l.expires_at, coordination.clock() + $4::interval)
  FROM unnest($1::text[], $2::bigint[]) AS p(id, bytes)
 WHERE l.id = p.id::uuid AND l.agent_id = $3 AND l.state = 'active'
RETURNING l.id::text`

func (w *work) queueBeat(b *pgx.Batch, beat Beat) {
	ids, bytes := make([]string, len(beat.Leases)), make([]int64, len(beat.Leases))
	for i, p := range beat.Leases {
		ids[i], bytes[i] = p.Lease, max(0, p.Bytes)
	}
	pulse := &Pulse{Seq: beat.Seq}
	b.Queue(beatSQL, ids, bytes, w.agent, w.timing.LeaseTTL).Query(collect(&pulse.Alive))
	b.Queue(`UPDATE forge.agents SET last_seen = coordination.clock() WHERE id = $1 AND link = $2`, w.agent, w.link).
		Exec(func(tag pgconn.CommandTag) error {
			w.replaced = w.replaced || tag.RowsAffected() == 0
			w.answer(Message{Pulse: pulse})
			return nil
		})
}

const completeSQL = `
WITH ended AS (
  UPDATE forge.leases SET state = 'done', ended_at = coordination.clock(), outcome = $3, exit_code = $4, duration_ms = $5,
         output_tail = $6, reason = $7
   WHERE id = $1::text::uuid AND agent_id = $2 AND state = 'active'
  RETURNING job_id)
UPDATE forge.jobs j SET state = $8, reason = $7, finished_at = coordination.clock()
  FROM ended WHERE j.id = ended.job_id AND j.state = 'leased'`

// queueComplete ends an active lease with its result, whoever leads and
// whichever daemon the agent reports to (§77). A repeated completion is accepted again.
func (w *work) queueComplete(b *pgx.Batch, c Complete) {
	tail := c.Tail
	if tail == nil {
		tail = []byte{}
	}
	b.Queue(completeSQL, c.Lease, w.agent, string(c.Outcome), c.ExitCode, c.Duration.Milliseconds(), tail,
		storable([]byte(c.Reason), MaxReason), string(c.Outcome.JobState()))
	b.Queue(`SELECT state = 'done' FROM forge.leases WHERE id = $1::text::uuid AND agent_id = $2`, c.Lease, w.agent).
		QueryRow(w.settled(c.Lease))
}

// queueRelease gives a lease up at once by ending its time; the fenced expiry
// loop does the rest. The tick may add time to it, which only delays that.
func (w *work) queueRelease(b *pgx.Batch, r Release) {
	b.Queue(`UPDATE forge.leases SET expires_at = least(expires_at, coordination.clock()), reason = $3
 WHERE id = $1::text::uuid AND agent_id = $2 AND state = 'active'`, r.Lease, w.agent, storable([]byte(r.Reason), MaxReason))
	b.Queue(`SELECT state <> 'done' FROM forge.leases WHERE id = $1::text::uuid AND agent_id = $2`, r.Lease, w.agent).
		QueryRow(w.settled(r.Lease))
}

func (w *work) settled(lease string) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var ok bool
		if err := row.Scan(&ok); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		w.freed = w.freed || ok
		w.answer(Message{Completed: &Completed{Lease: lease, Accepted: ok}})
		return nil
	}
}

func collect(into *[]string) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		*into = ids
		return err
	}
}

func affected(n *int64) func(pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = tag.RowsAffected()
		return nil
	}
}
