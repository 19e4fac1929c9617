// HTTP handlers of agents: who there is, and what an operator does to one.

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/events"
)

// AgentState sums up whether an agent takes work.
type AgentState string

// The states of an agent, the first that applies.
const (
	AgentQuarantined AgentState = "quarantined" // gets nothing until an operator releases it
	AgentAway        AgentState = "away"        // no daemon holds its link, or it was not heard of for AgentSilence
	AgentClosing     AgentState = "closing"     // its process is stopping
	AgentDraining    AgentState = "draining"    // finishes what it runs and gets nothing new
	AgentReady       AgentState = "ready"
)

// AgentSilence is after which silence an agent counts as away.
const AgentSilence = 30 * time.Second

// AgentInfo is an agent as the daemons know it.
type AgentInfo struct {
	ID               string       `json:"id"` // of its certificate
	State            AgentState   `json:"state"`
	Node             string       `json:"node,omitempty"` // the daemon that holds its link
	Slots            int          `json:"slots"`
	Held             int          `json:"held"` // active leases
	Labels           []string     `json:"labels"`
	Build            string       `json:"build,omitempty"`
	Session          string       `json:"session"` // its process
	Unaccepted       int          `json:"unaccepted"`
	FirstSeen        time.Time    `json:"first_seen"`
	LastSeen         time.Time    `json:"last_seen"`
	DrainRequestedAt *time.Time   `json:"drain_requested_at,omitempty"`
	QuarantinedAt    *time.Time   `json:"quarantined_at,omitempty"`
	QuarantineReason string       `json:"quarantine_reason,omitempty"`
	Leases           []AgentLease `json:"leases,omitempty"` // active ones; only GET /v1/agents/{id} fills it
}

// AgentLease is a lease that an agent holds.
type AgentLease struct {
	ID         string     `json:"id"`
	Run        string     `json:"run"`
	Job        string     `json:"job"` // its name
	Attempt    int        `json:"attempt"`
	LeasedAt   time.Time  `json:"leased_at"`
	AcceptedAt *time.Time `json:"accepted_at,omitempty"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Note       string     `json:"note,omitempty"`
}

// AgentDocument is the answer of GET /v1/agents/{id} and of what is done to an agent.
type AgentDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	AgentInfo
}

// AgentListDocument is the answer of GET /v1/agents, by id.
type AgentListDocument struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Agents     []AgentInfo `json:"agents"`
}

const agentsSQL = `
SELECT a.id, CASE WHEN a.quarantined_at IS NOT NULL THEN 'quarantined'
                  WHEN a.link IS NULL OR a.last_seen <= coordination.clock() - $2::interval THEN 'away'
                  WHEN a.closing THEN 'closing' WHEN a.drain_requested_at IS NOT NULL THEN 'draining' ELSE 'ready' END,
       coalesce(a.node, ''), a.slots, (SELECT count(*) FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active'), a.labels, a.build,
       a.session, a.unaccepted, a.first_seen, a.last_seen, a.drain_requested_at, a.quarantined_at, a.quarantine_reason
  FROM forge.agents a WHERE $1 = '' OR a.id = $1 ORDER BY a.id`

const agentLeasesSQL = `
SELECT l.id::text, j.run_id, j.name, l.attempt, l.leased_at, l.accepted_at, l.expires_at, l.note
  FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.agent_id = $1 AND l.state = 'active' ORDER BY l.leased_at, l.id`

func queueAgent(b *pgx.Batch, id string, into *[]AgentInfo) {
	b.Queue(agentsSQL, id, AgentSilence).Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a AgentInfo, err error) {
			return a, row.Scan(&a.ID, &a.State, &a.Node, &a.Slots, &a.Held, &a.Labels, &a.Build, &a.Session, &a.Unaccepted,
				&a.FirstSeen, &a.LastSeen, &a.DrainRequestedAt, &a.QuarantinedAt, &a.QuarantineReason)
		})
		return err
	})
}

// Agents lists every agent there ever was, without leases.
func Agents(ctx context.Context, db Database) ([]AgentInfo, error) {
	var all []AgentInfo
	if err := db.Batch(ctx, func(b *pgx.Batch) { queueAgent(b, "", &all) }); err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	return orEmpty(all), nil
}

// agentInfo returns one agent with its leases; access.ErrNotFound when there is none.
func (a *API) agentInfo(ctx context.Context, id string) (AgentInfo, error) {
	var found []AgentInfo
	var leases []AgentLease
	if !validAgent(id) {
		return AgentInfo{}, access.ErrNoAgent.Because("no agent %.64q", id)
	}
	err := a.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		queueAgent(b, id, &found)
		b.Queue(agentLeasesSQL, id).Query(func(rows pgx.Rows) (err error) {
			leases, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l AgentLease, err error) {
				return l, row.Scan(&l.ID, &l.Run, &l.Job, &l.Attempt, &l.LeasedAt, &l.AcceptedAt, &l.ExpiresAt, &l.Note)
			})
			return err
		})
	})
	switch {
	case err != nil:
		return AgentInfo{}, fmt.Errorf("read agent %s: %w", id, err)
	case len(found) == 0:
		return AgentInfo{}, access.ErrNoAgent.Because("no agent %q", id)
	}
	found[0].Leases = leases
	return found[0], nil
}

// validAgent refuses what cannot be an agent's id, and the "" that means all of them.
func validAgent(id string) bool { return id != "" && len(id) <= 64 && name("agent", id) == nil }

func (a *API) agents(w http.ResponseWriter, r *http.Request) error {
	all, err := Agents(r.Context(), a.cfg.Store)
	if err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusOK, AgentListDocument{APIVersion: apiVersion, Kind: "AgentList", Agents: all})
	return nil
}

func (a *API) agent(w http.ResponseWriter, r *http.Request) error {
	info, err := a.agentInfo(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusOK, AgentDocument{APIVersion: apiVersion, Kind: "Agent", AgentInfo: info})
	return nil
}

// agentAct is something that an operator does to an agent. Each may be
// repeated, and changes only what is the client's.
type agentAct struct {
	action string // in the audit
	sql    string // of the agent $1; $2 is the reason
}

var (
	drainAgent = agentAct{"agent.drain", `
UPDATE forge.agents SET drain_requested_at = coalesce(drain_requested_at, coordination.clock()) WHERE id = $1 AND $2::text IS NOT NULL`}
	undrainAgent = agentAct{"agent.undrain", `
UPDATE forge.agents SET drain_requested_at = NULL WHERE id = $1 AND $2::text IS NOT NULL`}
	quarantineAgent = agentAct{"agent.quarantine", `
UPDATE forge.agents SET quarantined_at = coalesce(quarantined_at, coordination.clock()), quarantine_reason = $2 WHERE id = $1`}
	releaseAgent = agentAct{"agent.release", `
UPDATE forge.agents SET quarantined_at = NULL, quarantine_reason = '', unaccepted = 0 WHERE id = $1 AND $2::text IS NOT NULL`}
)

// AgentRequest is the optional body of what is done to an agent.
type AgentRequest struct {
	Reason string `json:"reason,omitempty"`
}

// change does something to an agent, audited, and answers with the agent.
func (a *API) change(act agentAct) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req AgentRequest
		if err := optionalJSON(w, r, &req); err != nil {
			return err
		}
		id := r.PathValue("id")
		if !validAgent(id) {
			return access.ErrNoAgent.Because("no agent %.64q", id)
		}
		if len(req.Reason) > MaxReason || name("reason", "x"+req.Reason) != nil && req.Reason != "" {
			return access.ErrBadRequest.Because("reason: it is longer than %d bytes or not printable", MaxReason)
		}
		var n int64
		err := a.cfg.Store.Batch(r.Context(), func(b *pgx.Batch) { b.Queue(act.sql, id, req.Reason).Exec(affected(&n)) })
		switch {
		case err != nil:
			err = fmt.Errorf("%s %s: %w", act.action, id, err)
		case n == 0:
			err = access.ErrNoAgent.Because("no agent %q", id)
		}
		a.audit(r.Context(), act.action, id, req.Reason, err)
		if err != nil {
			return err
		}
		a.cfg.Notify(events.Orders) // the daemon that holds its link
		a.cfg.Notify(events.Work)
		info, err := a.agentInfo(r.Context(), id)
		if err != nil {
			return err
		}
		access.WriteJSON(w, http.StatusOK, AgentDocument{APIVersion: apiVersion, Kind: "Agent", AgentInfo: info})
		return nil
	}
}

// auditBound is how long an answer waits for its record.
const auditBound = time.Second

// audit records what was done or refused, also when the client has left.
func (a *API) audit(ctx context.Context, action, target, detail string, result error) {
	if a.cfg.Audit == nil {
		return
	}
	node, epoch := a.cfg.Whose()
	rec := cluster.AuditRecord{
		Actor: access.CallerOf(ctx).String(), Action: action, Target: target, Outcome: "accepted", Detail: detail, Node: node, Epoch: epoch,
	}
	if fault := (*access.Fault)(nil); errors.As(result, &fault) {
		rec.Outcome, rec.Detail = "refused", result.Error()
	} else if result != nil {
		rec.Outcome, rec.Detail = "unknown", result.Error()
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), auditBound)
	defer done()
	if err := a.cfg.Audit.Record(ctx, rec); err != nil {
		a.cfg.Logger.Warn("audit record not written", "action", action, "target", target, "outcome", rec.Outcome, "err", err)
	}
}
