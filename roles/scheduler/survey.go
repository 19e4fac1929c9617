// The survey: how much waits, for what, and for how long. It serves monitoring and autoscaling and decides nothing.

package scheduler

import (
	"cmp"
	"context"
	"slices"
	"strings"
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
	Queues     []QueueDepth    `json:"queues"` // the deepest first
	Labels     []LabelDepth    `json:"labels"` // the deepest first
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

// One row for each kind of waiting jobs, however many there are.
const surveySQL = `
WITH free AS MATERIALIZED (
  SELECT a.labels, greatest(0, CASE WHEN a.unaccepted > 0 THEN 1 ELSE a.slots END - held.n) AS free
    FROM forge.agents a
   CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM forge.leases l WHERE l.agent_id = a.id AND l.state = 'active') held
   WHERE ` + takesSQL + `), kind AS MATERIALIZED (
  SELECT queue, labels, count(*) AS n, extract(epoch FROM coordination.clock() - min(queued_at)) AS oldest
    FROM forge.jobs WHERE state = 'queued' GROUP BY queue, labels), asked AS (
  SELECT l.labels, count(free.free) AS agents, coalesce(sum(free.free), 0) AS free
    FROM (SELECT DISTINCT labels FROM kind) l LEFT JOIN free ON l.labels <@ free.labels GROUP BY l.labels)
SELECT k.queue, k.labels, k.n, greatest(0, k.oldest)::float8, a.agents, a.free FROM kind k JOIN asked a USING (labels)`

const activeSQL = `SELECT count(*) FROM forge.leases WHERE state = 'active'`

// queueSurvey queues the survey; what it found is complete after the transaction.
func queueSurvey(b *pgx.Batch, agentTTL time.Duration, out *Survey) {
	b.Queue(surveySQL, agentTTL).Query(func(rows pgx.Rows) error {
		*out = Survey{Queues: []QueueDepth{}, Labels: []LabelDepth{}}
		queues, kinds := map[string]*QueueDepth{}, map[string]*LabelDepth{}
		for rows.Next() {
			var queue string
			var k LabelDepth
			var oldest float64
			if err := rows.Scan(&queue, &k.Labels, &k.Depth, &oldest, &k.Agents, &k.Free); err != nil {
				return err
			}
			k.OldestWait = runner.Duration(time.Duration(oldest * float64(time.Second)).Round(time.Millisecond))
			out.Depth += k.Depth
			out.OldestWait = max(out.OldestWait, k.OldestWait)
			if q := queues[queue]; q != nil {
				q.Depth, q.OldestWait = q.Depth+k.Depth, max(q.OldestWait, k.OldestWait)
			} else {
				queues[queue] = &QueueDepth{Queue: queue, Depth: k.Depth, OldestWait: k.OldestWait}
			}
			key := strings.Join(k.Labels, "\x00")
			if l := kinds[key]; l != nil {
				l.Depth, l.OldestWait = l.Depth+k.Depth, max(l.OldestWait, k.OldestWait)
			} else {
				kinds[key] = &k
			}
		}
		for _, q := range queues {
			out.Queues = append(out.Queues, *q)
		}
		for _, k := range kinds {
			out.Labels = append(out.Labels, *k)
		}
		slices.SortFunc(out.Queues, func(a, b QueueDepth) int {
			return cmp.Or(cmp.Compare(b.Depth, a.Depth), strings.Compare(a.Queue, b.Queue))
		})
		slices.SortFunc(out.Labels, func(a, b LabelDepth) int {
			return cmp.Or(cmp.Compare(b.Depth, a.Depth), slices.Compare(a.Labels, b.Labels))
		})
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
