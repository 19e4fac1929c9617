// Floods of queues, labels and jobs: what is told of them stays bounded, true and quick.

package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// flood stores n queued jobs of a run in its queue, with the labels that an SQL
// expression over their number i gives.
func (p *plane) flood(run, queue string, n int, labels string) {
	p.Helper()
	p.exec(`INSERT INTO forge.runs (id, name, request_digest, queue) VALUES ($1, 'flood', decode(repeat('00', 32), 'hex'), $2) ON CONFLICT DO NOTHING`, run, queue)
	p.exec(`INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms, queue, labels, priority, queued_at)
		SELECT 'F' || right($1, 8) || lpad(i::text, 17, '0'), $1, 'job-' || i, '[{"argv":["true"]}]', 1000, $2, `+labels+`, i % 3, coordination.clock() - i * interval '1 s'
		  FROM generate_series(1, $3::int) i`, run, queue, n)
}

// TestSurveyOfAFlood: queues and sets of labels beyond those listed are counted
// together, and no job is lost in the sums.
func TestSurveyOfAFlood(t *testing.T) {
	p := newPlane(t, Config{})
	g := p.lead()
	p.agent("a", 4, "l7", "x")
	p.flood(run(1), "many", 3*Listed, `ARRAY['l' || i % 250]`)
	p.flood(run(2), "more", 10, `'{}'`)
	for i := range Listed + 5 {
		p.flood(run(100+i), "q"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String(), 1, `'{}'`)
	}
	_, err := p.survey(t.Context(), g)
	require.NoError(t, err)
	s := p.meter.survey.Load().Survey
	require.Equal(t, 3*Listed+10+Listed+5, s.Depth)
	require.Len(t, s.Queues, Listed)
	require.Equal(t, QueueDepth{Queue: "many", Depth: 3 * Listed, OldestWait: s.OldestWait}, s.Queues[0])
	require.Equal(t, []int{7, 7}, []int{s.MoreQueues.Count, s.MoreQueues.Depth})
	require.Len(t, s.Labels, Listed)
	require.Equal(t, 51, s.MoreLabels.Count)
	sum := s.MoreLabels.Depth
	for _, l := range s.Labels {
		sum += l.Depth
		agents := 0
		if len(l.Labels) == 0 || l.Labels[0] == "l7" {
			agents = 1
		}
		require.Equal(t, []int{agents, 4 * agents}, []int{l.Agents, l.Free}, "%v", l.Labels)
	}
	require.Equal(t, s.Depth, sum)

	r := prometheus.NewRegistry()
	r.MustRegister(queueFigures{p.meter})
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "forgeyard_scheduler_queue_depth" {
			require.Len(t, f.GetMetric(), queuesShown+1)
		}
	}
}

// TestWhyAhead counts the jobs that come first across the kinds of a queue, in
// its order, and says when there may be more than it counted.
func TestWhyAhead(t *testing.T) {
	p := newPlane(t, Config{})
	p.agent("a", 4, "other")
	ahead := func(job int) (int, bool) {
		t.Helper()
		doc, err := Why(t.Context(), p.store, RoleState{Active: true}, run(9))
		require.NoError(t, err)
		require.Equal(t, WaitsForTurn, doc.Jobs[job].Reasons[0].Code)
		require.Equal(t, doc.Jobs[job].Reasons[0].More, strings.Contains(doc.Jobs[job].Reasons[0].Message, "or more"))
		return doc.Jobs[job].Reasons[0].Ahead, doc.Jobs[job].Reasons[0].More
	}
	exactly := func(job int) int {
		t.Helper()
		return one[int](p, `SELECT count(*) FROM forge.jobs a, (SELECT * FROM forge.jobs WHERE run_id = $1 ORDER BY seq OFFSET $2 LIMIT 1) j
			WHERE a.state = 'queued' AND a.queue = j.queue AND (a.priority > j.priority OR a.priority = j.priority AND a.seq < j.seq)`, run(9), job)
	}
	p.flood(run(1), "q", 90, `ARRAY['l' || i % 40]`)
	p.flood(run(2), "before", 50, `'{}'`)
	p.job(run(9), "1", "q")
	p.job(run(9), "2", "q")
	p.flood(run(3), "q", 60, `ARRAY['l' || i % 40]`)
	p.exec(`UPDATE forge.jobs SET priority = 1 WHERE name = '2'`)
	for job := range 2 {
		n, more := ahead(job)
		require.Equal(t, exactly(job), n)
		require.False(t, more)
	}
	p.exec(`SET session_replication_role = replica`) // the flood goes as it came
	p.exec(`DELETE FROM forge.jobs WHERE run_id = $1`, run(3))
	p.flood(run(3), "q", 300, `ARRAY['m' || i]`)
	n, more := ahead(0)
	require.True(t, more, "of so many kinds not all are looked at")
	require.LessOrEqual(t, n, exactly(0))
	p.exec(`DELETE FROM forge.jobs WHERE run_id = $1`, run(3))
	p.flood(run(3), "q", 3*AheadShown+10, `'{}'`)
	n, more = ahead(0)
	require.Equal(t, []any{AheadShown, true}, []any{n, more})
	require.Greater(t, exactly(0), AheadShown)
}
