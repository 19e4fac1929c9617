// From the submission of a job to its first step, on a fleet that has nothing else to do.

package fleetbench

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// submissions are made one after the other, each once the one before has ended, to every daemon in turn.
const submissions = 100

// BenchmarkSubmitToStarted takes three moments of each job after the client began to send it, on a durable PostgreSQL:
// the daemon's answer, the start that the agent noted, and the job's own first look at the clock.
func BenchmarkSubmitToStarted(b *testing.B) {
	f := startFleetWith(b, fleet.Options{Fsync: true})
	for range b.N {
		var answered, started, running []time.Duration
		began := map[string]time.Time{} // by job
		for i := range submissions {
			ctx, cancel := context.WithTimeout(context.Background(), trialBound)
			spec := runner.RunSpec{Name: "started", Jobs: []runner.JobSpec{{Name: "clock", Argv: []string{"date", "+%s%N"}}}}
			at := time.Now()
			run, err := f.Submit(ctx, i, spec)
			require.NoError(b, err)
			answered = append(answered, time.Since(at))
			require.NoError(b, f.WaitTerminal(ctx))
			var job, text string
			require.NoError(b, f.Query(ctx, `SELECT l.job_id, convert_from(l.output_tail, 'UTF8')
				FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1 AND l.outcome = 'succeeded'`, []any{run.ID}, &job, &text))
			began[job] = at
			lines := strings.Fields(text)
			clock, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
			require.NoError(b, err, text)
			running = append(running, time.Unix(0, clock).Sub(at))
			cancel()
		}
		for _, a := range f.Agents() {
			started = append(started, starts(b, a, began)...)
		}
		require.Len(b, started, submissions)
		b.ReportMetric(0, "ns/op")
		for _, row := range []struct {
			name  string
			times []time.Duration
		}{{"answered", answered}, {"started", started}, {"running", running}} {
			slices.Sort(row.times)
			p50, p99 := milliseconds(row.times[len(row.times)/2]), milliseconds(row.times[len(row.times)*99/100])
			b.ReportMetric(p50, row.name+"-p50-ms")
			b.ReportMetric(p99, row.name+"-p99-ms")
			b.Logf("%-8s p50 %.1f ms, p99 %.1f ms, from %.1f to %.1f ms", row.name, p50, p99,
				milliseconds(row.times[0]), milliseconds(row.times[len(row.times)-1]))
		}
	}
}

// starts reads from an agent's journal how long after the beginning of its submission each job was started.
func starts(b *testing.B, a *fleet.Agent, began map[string]time.Time) (after []time.Duration) {
	entries, err := a.Journal()
	require.NoError(b, err)
	for _, e := range entries {
		if at, ok := began[e.Job]; ok && e.What == runner.EntryStart {
			after = append(after, time.Duration(e.Mono-trace.Mono(at)))
		}
	}
	return after
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
