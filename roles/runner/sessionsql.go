// The SQL of links: an agent's registration, and what a daemon has to tell the agents whose links it holds.

package runner

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const registerSQL = `
INSERT INTO forge.agents AS a (id, session, link, node, slots, labels, build)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET session = EXCLUDED.session, link = EXCLUDED.link, node = EXCLUDED.node,
  slots = EXCLUDED.slots, labels = EXCLUDED.labels, build = EXCLUDED.build, last_seen = coordination.clock(), closing = false
RETURNING drain_requested_at IS NOT NULL`

// A lease that this same agent process accepted but does not know of lost its
// Start on the way: its order is opened again. A lease that it gave up says why,
// and is nobody's until a scheduler ends it. A lease that another process of the
// agent accepted is left to run out, unless that agent's journal gives it up.
const reopenSQL = `
UPDATE forge.dispatch d SET state = 'open'
  FROM forge.leases l
 WHERE l.agent_id = $1 AND l.state = 'active' AND l.session = $2 AND l.id <> ALL ($3::text[]::uuid[])
   AND l.reason = '' AND d.lease_id = l.id AND d.state = 'delivered'`

// An acceptance that came by the link before may not have ended yet: it holds the
// lease's row. Whoever registers waits for it, and so sees below what it did; one
// that comes later waits for the registration, and finds that its link is no more.
const awaitAcceptedSQL = `
SELECT FROM forge.leases WHERE agent_id = $1 AND state = 'active' ORDER BY id FOR NO KEY UPDATE`

const keepSQL = `SELECT id::text FROM forge.leases WHERE agent_id = $1 AND state = 'active' AND id = ANY ($2::text[]::uuid[])`

// record writes the link down and answers from the database's truth.
func (s *Sessions) record(ctx context.Context, l *session, h Hello) (Welcome, error) {
	w := Welcome{Node: s.cfg.Node, Link: l.id, TTL: s.cfg.Timing.LeaseTTL, Every: s.cfg.Timing.Heartbeat}
	for _, id := range h.Known {
		if !validLease(id) {
			return w, &protocolError{what: "a known lease is no lease id"}
		}
	}
	known, labels := orEmpty(h.Known), orEmpty(h.Labels)
	l.asked = true
	err := s.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(awaitAcceptedSQL, l.agent)
		b.Queue(reopenSQL, l.agent, h.Session, known)
		b.Queue(keepSQL, l.agent, known).Query(collect(&w.Keep))
		b.Queue(registerSQL, l.agent, h.Session, l.id, s.cfg.Node, h.Slots, labels, h.Build). // agents are locked after orders
													QueryRow(func(row pgx.Row) error { return row.Scan(&w.Drain) })
	})
	return w, err
}

func queueUnlink(b *pgx.Batch, agent string, links []string) {
	b.Queue(`UPDATE forge.agents SET link = NULL, node = NULL WHERE id = $1 AND link = ANY ($2)`, agent, links)
}

// The epoch is read by the statement that claims the row, by its lock: a row
// that a new leader is re-stamping is either skipped or read with the new epoch.
// SKIP LOCKED also keeps this from waiting, and so from deadlocks. The join on
// the link keeps a daemon that does not yet know that its agent has moved from
// claiming anything. An order that was sent under the epoch which it still has,
// $3 to $5, is left out: that costs the database nothing, a note in the row would cost as much as the order.
const claimSQL = `
WITH sent AS MATERIALIZED (
  SELECT * FROM unnest($3::text[]::uuid[], $4::bigint[], $5::bigint[]) AS s(lease, generation, epoch)), taken AS (
  SELECT d.lease_id, d.generation, d.epoch
    FROM unnest($1::text[], $2::text[]) AS mine(agent, link)
    JOIN forge.agents a ON a.id = mine.agent AND a.link = mine.link
    JOIN forge.dispatch d ON d.agent_id = a.id AND d.state = 'open'
   WHERE (d.lease_id, d.generation, d.epoch) NOT IN (SELECT lease, generation, epoch FROM sent)
     FOR UPDATE OF d SKIP LOCKED)
SELECT l.agent_id, l.id::text, d.generation, d.epoch, j.run_id, j.id, l.attempt, j.steps, j.env, j.timeout_ms,
       coalesce('sha256:' || encode(r.source, 'hex'), ''), j.outputs, CASE WHEN j.needs = '{}' THEN '[]' ELSE ` + inputsSQL + ` END
  FROM taken d JOIN forge.leases l ON l.id = d.lease_id JOIN forge.jobs j ON j.id = l.job_id JOIN forge.runs r ON r.id = j.run_id
 WHERE l.state IS NOT DISTINCT FROM 'active' AND l.cancel_requested_at IS NULL`

// inputsSQL lists the artifacts of the needs of job j, those of the attempt that succeeded.
const inputsSQL = `
 (SELECT coalesce(jsonb_agg(jsonb_build_object('job', n.name, 'name', x.name, 'path', x.path, 'digest', 'sha256:' || encode(x.digest, 'hex'))
                            ORDER BY n.seq, x.name), '[]')
    FROM forge.jobs n JOIN forge.leases nl ON nl.job_id = n.id AND nl.outcome = 'succeeded' JOIN forge.artifacts x ON x.lease_id = nl.id
   WHERE n.run_id = j.run_id AND n.name = ANY (j.needs))`

func queueClaims(b *pgx.Batch, agents, links []string, sent orderColumns, out *[]addressed) {
	b.Queue(claimSQL, agents, links, orEmpty(sent.leases), orEmpty(sent.generations), orEmpty(sent.epochs)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			o := &Offer{Role: fsm.SchedulerLeader}
			var agent string
			var timeout int64
			if err := rows.Scan(&agent, &o.Lease, &o.Generation, &o.Epoch, &o.Run, &o.Job, &o.Attempt, &o.Steps, &o.Env, &timeout,
				&o.Source, &o.Outputs, &o.Inputs); err != nil {
				return err
			}
			o.Timeout = time.Duration(timeout) * time.Millisecond
			*out = append(*out, addressed{agent: agent, message: Message{Offer: o}})
		}
		return rows.Err()
	})
}

// A lease that was made before the end of its job was asked for is cancelled by
// that, also when the daemon which took the request died before it marked the lease.
const cancelsSQL = `
SELECT l.agent_id, l.id::text FROM forge.leases l
 WHERE l.agent_id = ANY ($1) AND l.state = 'active' AND l.cancel_requested_at IS NOT NULL AND l.accepted_at IS NOT NULL
UNION
SELECT l.agent_id, l.id::text FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id AND l.state = 'active'
 WHERE j.cancel_requested_at IS NOT NULL AND j.finished_at IS NULL AND l.agent_id = ANY ($1) AND l.accepted_at IS NOT NULL`

func queueCancels(b *pgx.Batch, agents []string, out *[]addressed) {
	b.Queue(cancelsSQL, agents).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var agent, lease string
			if err := rows.Scan(&agent, &lease); err != nil {
				return err
			}
			*out = append(*out, addressed{agent: agent, message: Message{Cancel: &CancelOrder{Lease: lease}}})
		}
		return rows.Err()
	})
}

// queueDrains reads which of the agents shall take nothing new.
func queueDrains(b *pgx.Batch, agents []string, draining map[string]bool) {
	b.Queue(`SELECT id FROM forge.agents WHERE id = ANY ($1) AND drain_requested_at IS NOT NULL`, agents).Query(collectSet(draining))
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
