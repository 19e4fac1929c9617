// Queues that share the fleet, jobs that nobody can run, and what daemons answer to "why does it wait".

package scenario

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
)

// Flood submits far more to one queue than the fleet can run, jobs that no agent
// can run to both, and then a few jobs to another queue. From its first lease on,
// the flood gets at most one lease between two of the other queue's; before it, no
// more than what was already planned when they came.
func Flood(t testing.TB, w *World, slots int) {
	odd := []string{w.misfits(t, "calm"), w.misfits(t, "flood")}
	flood := runner.RunSpec{Name: "flood", Queue: "flood"}
	for i := range 8 * slots {
		flood.Jobs = append(flood.Jobs, shell(fmt.Sprint("f", i), "sleep 0.05"))
	}
	many := w.submitSpec(t, flood)
	require.NoError(t, w.waitLeasesOf(bounded(t), many, slots))
	calm := runner.RunSpec{Name: "calm", Queue: "calm"}
	for i := range slots {
		calm.Jobs = append(calm.Jobs, shell(fmt.Sprint("c", i), "sleep 0.05"))
	}
	few := w.submitSpec(t, calm)
	first := w.count(t, `SELECT count(*) FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1`, many)
	w.ended(t, few, runner.RunSucceeded)
	require.Positive(t, w.count(t, `SELECT count(*) FROM forge.jobs WHERE run_id = $1 AND state = 'queued'`, many), "the flood was over: it proves nothing")

	var order []string
	w.database(t, func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, `SELECT j.queue FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id IN ($1, $2) ORDER BY l.id`, many, few)
		require.NoError(t, err)
		order, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
	})
	seen, before, between := 0, 0, 0
	for _, q := range order {
		switch {
		case q == "calm":
			seen, between = seen+1, 0
		case seen == 0:
			before++
		case seen < slots:
			between++
			require.LessOrEqual(t, between, 1, "the flood overtook the other queue: %v", order)
		}
	}
	t.Logf("%d leases of the flood when the others came, %d when they got their first", first, before)
	require.LessOrEqual(t, before-first, 2*slots, "the other queue waited for its first lease")
	w.ended(t, many, runner.RunSucceeded)
	for _, run := range odd {
		w.cancelled(t, run)
	}
}

// misfits submits jobs to a queue that no agent can run, the oldest of all that wait there.
func (w *World) misfits(t testing.TB, queue string) string {
	t.Helper()
	spec := runner.RunSpec{Name: "misfits", Queue: queue}
	for i := range 50 {
		spec.Jobs = append(spec.Jobs, shell(fmt.Sprint("m", i), "true", "mainframe"))
		spec.Jobs[i].Priority = 100
	}
	return w.submitSpec(t, spec)
}

func (w *World) waitLeasesOf(ctx context.Context, run string, count int) error {
	for {
		var have int
		if err := w.Query(ctx, `SELECT count(*) FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1`, []any{run}, &have); err != nil {
			return err
		}
		if have >= count {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d leases of run %s: %w", have, count, run, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Why asks for the reasons that a fleet at work can give: labels that nobody
// carries, needs, no capacity, and an attempt that is repeated later.
func Why(t testing.TB, w *World, slots int) {
	g := w.gate(t, "why")
	var fill []runner.JobSpec
	for i := range slots {
		fill = append(fill, shell(fmt.Sprint("fill", i), g.wait()))
	}
	full := w.submit(t, "fill", fill...)
	require.NoError(t, w.waitLeasesOf(bounded(t), full, slots))
	after := shell("after", "true")
	after.Needs = []string{"odd"}
	run := w.submit(t, "why", shell("odd", "true", "mainframe"), shell("plain", "true"), after)
	require.Contains(t, w.waitsFor(t, run, "odd", scheduler.WaitsForLabels).Message, "no agent carries mainframe")
	require.Equal(t, []scheduler.NeedState{{Job: "odd", State: "queued"}}, w.waitsFor(t, run, "after", scheduler.WaitsForNeeds).Needs)
	require.Contains(t, w.waitsFor(t, run, "plain", scheduler.WaitsForCapacity).Message, "busy")
	g.open(t)
	w.ended(t, full, runner.RunSucceeded)

	again := shell("again", "[ $FORGEYARD_ATTEMPT = 2 ]")
	again.Retries = 1
	repeated := w.submit(t, "repeated", again)
	require.NotNil(t, w.waitsFor(t, repeated, "again", scheduler.WaitsForBackoff).Until)
	w.ended(t, repeated, runner.RunSucceeded)
	w.cancelled(t, run)
}

// cancelled asks for the end of a run and waits for it.
func (w *World) cancelled(t testing.TB, run string) {
	t.Helper()
	w.ask(t, http.MethodPost, "/v1/runs/"+run+"/cancel", runner.CancelRequest{}, nil)
	_, err := w.WaitRun(bounded(t), run)
	require.NoError(t, err)
}

// lostQuorum matches what a daemon says without one; see also statusSaysWhy.
var lostQuorum = regexp.MustCompile(`unreachable|no leader|majority|contact`)

// WhyNobodySchedules kills all daemons but one. What is left says that nobody
// schedules, and why; it takes a cancel, which then waits for a scheduler too; and
// the daemons that come back end the run.
func WhyNobodySchedules(t testing.TB, w *World) {
	ctx := bounded(t)
	run := w.submit(t, "nobody", shell("odd", "true", "mainframe"))
	nodes := w.Nodes()
	for _, n := range nodes[1:] {
		require.NoError(t, n.Kill())
	}
	var why string
	eventually(t, "the lost quorum is blamed", func() bool {
		why = w.waitsFor(t, run, "odd", scheduler.WaitsForScheduler).Message
		return lostQuorum.MatchString(why)
	})
	t.Log(why)
	w.ask(t, http.MethodPost, "/v1/runs/"+run+"/cancel", runner.CancelRequest{}, nil)
	w.waitsFor(t, run, "odd", scheduler.WaitsForCancel)
	for _, n := range nodes[1:] {
		require.NoError(t, n.Resume(ctx))
	}
	w.ended(t, run, runner.RunCancelled)
	w.whole(t, nodes[0])
}
