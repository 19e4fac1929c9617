// The survey: how much waits, for what, and for how long. It serves monitoring and autoscaling and decides nothing.

package scheduler

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// Survey is what waits for an agent, and how many leases are active. The
// signals for an autoscaler are Labels: jobs that any agent with those labels could take.
type Survey struct {
	Depth      int             `json:"depth"`       // jobs that wait
	OldestWait runner.Duration `json:"oldest_wait"` // of the job that has waited longest; by the database's clock
	Active     int             `json:"active_leases"`
	Queues     []QueueDepth    `json:"queues"`                // the deepest first, at most Listed
	MoreQueues *Rest           `json:"more_queues,omitempty"` // those beyond
	Labels     []LabelDepth    `json:"labels"`                // the deepest first, at most Listed
	MoreLabels *Rest           `json:"more_labels,omitempty"` // the sets of labels beyond
}

// Listed bounds the queues, and the sets of labels, that a survey tells apart:
// clients name both as they like, and the answer, the metrics and the memory of
// the leader must not grow with it.
const Listed = 200

// Rest is what a list leaves out.
type Rest struct {
	Count      int             `json:"count"` // queues, or sets of labels
	Depth      int             `json:"depth"` // jobs that wait in them
	OldestWait runner.Duration `json:"oldest_wait"`
}

// QueueDepth is what waits in one queue.
type QueueDepth struct {
	Queue      string          `json:"queue"`
	Depth      int             `json:"depth"`
	OldestWait runner.Duration `json:"oldest_wait"`
}

// LabelDepth is what waits, over all queues, for an agent that carries exactly these labels or more.
type LabelDepth struct {
	Labels     []string        `json:"labels"`
	Depth      int             `json:"depth"`
	OldestWait runner.Duration `json:"oldest_wait"`
	Agents     int             `json:"agents"` // linked agents that carry them and take work
	Free       int             `json:"free"`   // their free slots
}

// One row for each queue and each set of labels that is listed, and one for the others. Only
// what is listed is compared with the agents.
const surveySQL = `
WITH free AS MATERIALIZED (
  SELECT a.labels, greatest(0, CASE WHEN a.unaccepted > 0 THEN 1 ELSE a.slots END - held.n) AS free
    FROM forge.agents a
   CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active') held
   WHERE ` + takesSQL + `), kind AS MATERIALIZED (
  SELECT queue, labels, count(*) AS n, min(queued_at) AS since FROM forge.jobs WHERE state = 'queued' GROUP BY queue, labels), queues AS (
  SELECT queue, sum(n) AS n, min(since) AS since, row_number() OVER (ORDER BY sum(n) DESC, queue) AS nth FROM kind GROUP BY queue), sets AS (
  SELECT labels, sum(n) AS n, min(since) AS since, row_number() OVER (ORDER BY sum(n) DESC, labels) AS nth FROM kind GROUP BY labels), found AS (
  SELECT 'queue' AS what, min(queue) AS queue, '{}'::text[] AS labels, sum(n) AS n, min(since) AS since, count(*) AS counted, least(nth, $2::bigint + 1) AS nth
    FROM queues GROUP BY least(nth, $2::bigint + 1)
  UNION ALL
  SELECT 'labels', '', min(labels), sum(n), min(since), count(*), least(nth, $2::bigint + 1) FROM sets GROUP BY least(nth, $2::bigint + 1))
SELECT f.what, f.queue, f.labels, f.n::bigint, greatest(0, extract(epoch FROM coordination.clock() - f.since))::float8, f.counted, f.nth > $2::bigint, coalesce(fit.agents, 0), coalesce(fit.free, 0)
  FROM found f LEFT JOIN LATERAL (
    SELECT count(*) AS agents, sum(free.free) AS free FROM free WHERE f.labels <@ free.labels) fit ON f.what = 'labels' AND f.nth <= $2::bigint
 ORDER BY f.what, f.nth`

const activeSQL = `SELECT count(*) FROM forge.leases WHERE state = 'active'`

// queueSurvey queues the survey; what it found is complete after the transaction.
func queueSurvey(b *pgx.Batch, agentTTL time.Duration, out *Survey) {
	b.Queue(surveySQL, agentTTL, Listed).Query(func(rows pgx.Rows) error {
		*out = Survey{Queues: []QueueDepth{}, Labels: []LabelDepth{}}
		for rows.Next() {
			var what, queue string
			var labels []string
			var seconds float64
			var rest Rest
			var beyond bool
			var agents, free int
			if err := rows.Scan(&what, &queue, &labels, &rest.Depth, &seconds, &rest.Count, &beyond, &agents, &free); err != nil {
				return err
			}
			rest.OldestWait = runner.Duration(time.Duration(seconds * float64(time.Second)).Round(time.Millisecond))
			if what == "queue" { // each job is in one of them
				out.Depth += rest.Depth
				out.OldestWait = max(out.OldestWait, rest.OldestWait)
			}
			switch {
			case beyond && what == "queue":
				out.MoreQueues = &rest
			case beyond:
				out.MoreLabels = &rest
			case what == "queue":
				out.Queues = append(out.Queues, QueueDepth{Queue: queue, Depth: rest.Depth, OldestWait: rest.OldestWait})
			default:
				out.Labels = append(out.Labels, LabelDepth{Labels: labels, Depth: rest.Depth, OldestWait: rest.OldestWait, Agents: agents, Free: free})
			}
		}
		return rows.Err()
	})
	b.Queue(activeSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Active) })
}

// surveyShare bounds what surveys cost: one is not made before this many times its own duration has passed.
const surveyShare = 50

// owned is a survey that is shown as long as its epoch lasts.
type owned struct {
	Survey
	guard cluster.RoleGuard
}

// survey is the loop's step. It is not fenced and its failure costs nothing
// but old figures: no epoch may end because a long queue takes long to count.
func (s *Scheduler) survey(ctx context.Context, g cluster.RoleGuard) (time.Duration, error) {
	began := time.Now()
	var found Survey
	err := s.cfg.Store.Batch(ctx, func(b *pgx.Batch) { queueSurvey(b, s.cfg.AgentTTL, &found) })
	if err == nil {
		s.meter.survey.Store(&owned{Survey: found, guard: g})
	} else if ctx.Err() == nil {
		s.cfg.Logger.Warn("the queues could not be counted", "err", err)
	}
	return max(s.cfg.Survey, surveyShare*time.Since(began)), nil
}
