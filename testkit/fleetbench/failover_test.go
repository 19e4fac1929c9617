// Failover: from the fault to the first fenced lease of the new epoch, with the time of each step.

package fleetbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

const (
	trials = 20
	// Between two early elections there is a rest of ten seconds.
	earlyTrials = 30
	earlyRest   = 11 * time.Second
	trialBound  = time.Minute
	// A trial needs work in the queue at the fault, or there is nothing to lease afterwards.
	jobsPerTrial = 100
	jobsArriving = 8
	jobScript    = "sleep 0.05"
)

// startFleet runs a fleet with the shipped timers and no fsync in PostgreSQL.
// Raft's own log is always synced.
func startFleet(b *testing.B) *fleet.Fleet { return startFleetWith(b, fleet.Options{}) }

// startFleetWith runs a fleet with the shipped timers and further options.
func startFleetWith(b *testing.B, o fleet.Options) *fleet.Fleet {
	b.Helper()
	bin := os.Getenv("FORGEYARD_BIN")
	if bin == "" {
		bin = filepath.Join(b.TempDir(), "forgeyard")
		text, err := exec.Command("go", "build", "-o", bin, "github.com/forgeyard/forgeyard/cmd/forgeyard").CombinedOutput()
		require.NoError(b, err, string(text))
	}
	dir, err := os.MkdirTemp("", "fyb")
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(context.Background(), trialBound)
	defer cancel()
	o.Dir, o.Binary, o.Trace, o.Env = dir, bin, true, append(o.Env, fleet.CheapJobs)
	f, err := fleet.Start(ctx, o)
	require.NoError(b, err)
	b.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), trialBound)
		defer cancel()
		require.NoError(b, f.Stop(stop))
		require.NoError(b, os.RemoveAll(dir))
	})
	return f
}

// BenchmarkFailoverKill ends the scheduler's owner, which leads, with kill -9. The
// relay between the daemons swallows what the kernel says of a dead process's port,
// so the elections wait for the timers.
func BenchmarkFailoverKill(b *testing.B) {
	failovers(b, startFleet(b), kind{trials: trials, queued: jobsPerTrial}, killed, resumed)
}

func killed(_ *fleet.Fleet, n *fleet.Node) error { return n.Kill() }

func resumed(ctx context.Context, _ *fleet.Fleet, n *fleet.Node) error { return n.Resume(ctx) }

// BenchmarkFailoverEarly is the same with networks of the daemons' own, where a dead
// process's port refuses: elections are early. PostgreSQL syncs, as in production. The
// work arrives with the fault: starting jobs would take the processors from what is measured.
func BenchmarkFailoverEarly(b *testing.B) {
	if !fleet.Privileged() {
		b.Skip("not privileged: a relay between the daemons swallows refusals, so the elections wait for the timers")
	}
	f := startFleetWith(b, fleet.Options{Namespaces: true, Fsync: true})
	failovers(b, f, kind{trials: earlyTrials, rest: earlyRest, arriving: jobsArriving}, killed, resumed)
	early := 0
	for _, n := range f.Nodes() {
		text, err := os.ReadFile(n.LogFile())
		require.NoError(b, err)
		early += strings.Count(string(text), "campaigning early")
	}
	b.Logf("%d early campaigns in %d trials", early, b.N*earlyTrials)
	b.ReportMetric(float64(early), "early-campaigns")
	require.GreaterOrEqual(b, early, b.N*earlyTrials*9/10, "the timers were measured, too")
}

// BenchmarkFailoverCut cuts the owner off from the other daemons; it still reaches PostgreSQL and the agents.
func BenchmarkFailoverCut(b *testing.B) {
	failovers(b, startFleet(b), kind{trials: trials, queued: jobsPerTrial}, func(f *fleet.Fleet, n *fleet.Node) error { return f.Partition(n.Name, false) },
		func(_ context.Context, f *fleet.Fleet, n *fleet.Node) error { return f.Heal(n.Name) })
}

// kind is how the trials of a benchmark are made.
type kind struct {
	trials   int
	rest     time.Duration // before each
	queued   int           // jobs that wait or run at the fault
	arriving int           // jobs that are submitted right after it
}

// failovers makes the trials.
func failovers(b *testing.B, f *fleet.Fleet, k kind, fault func(*fleet.Fleet, *fleet.Node) error, mend func(context.Context, *fleet.Fleet, *fleet.Node) error) {
	for range b.N {
		var all []steps
		for i := range k.trials {
			<-time.After(k.rest)
			all = append(all, trial(b, f, i, k, fault, mend))
		}
		report(b, all)
	}
}

// steps are the moments of one failover, each counted from the fault.
type steps struct {
	elected, barrier, granted, raised, reconciled, leased time.Duration
}

func trial(b *testing.B, f *fleet.Fleet, i int, k kind, fault func(*fleet.Fleet, *fleet.Node) error, mend func(context.Context, *fleet.Fleet, *fleet.Node) error) steps {
	ctx, cancel := context.WithTimeout(context.Background(), trialBound)
	defer cancel()
	submit := func(jobs, parts int) {
		for part := range parts {
			_, err := f.Submit(ctx, part, fleet.ShellRun(fmt.Sprintf("trial-%d", i), jobs/parts, jobScript))
			require.NoError(b, err)
		}
	}
	if k.queued > 0 {
		submit(k.queued, 4)
	}
	owner, before, err := f.RoleOwner(ctx, fsm.SchedulerLeader, 0)
	require.NoError(b, err)
	at := time.Now()
	require.NoError(b, fault(f, owner))
	if k.arriving > 0 {
		submit(k.arriving, 1)
	}
	took, epoch, err := f.FirstLeaseAbove(ctx, before, at)
	require.NoError(b, err)
	s := dissect(b, f, owner, epoch, at)
	s.leased = took
	require.NoError(b, mend(ctx, f, owner))
	_, err = owner.WaitStatus(ctx, "three healthy voters", func(s health.ClusterStatus) bool { return s.Quorum.VotersHealthy == 3 })
	require.NoError(b, err)
	require.NoError(b, f.WaitTerminal(ctx))
	return s
}

// dissect reads the steps from the new owner's log and trace.
func dissect(b *testing.B, f *fleet.Fleet, old *fleet.Node, epoch fsm.Epoch, at time.Time) steps {
	var s steps
	toWall := time.Now().UnixNano() - trace.Mono(time.Now())
	for _, n := range f.Nodes() {
		if n == old {
			continue
		}
		events, err := trace.Read(n.TraceFile())
		require.NoError(b, err)
		events = trace.Select(events, fsm.SchedulerLeader, epoch)
		if len(events) == 0 {
			continue
		}
		moment := func(kind trace.Kind) time.Duration {
			i := slices.IndexFunc(events, func(e trace.Event) bool { return e.Kind == kind })
			if i < 0 {
				return 0
			}
			return time.Unix(0, events[i].Mono+toWall).Sub(at)
		}
		s.granted, s.raised, s.reconciled = moment(trace.Grant), moment(trace.Fenced), moment(trace.Active)
		s.elected = firstAfter(b, n, "entering leader state", at)
		s.barrier = firstAfter(b, n, "leadership established", at)
	}
	return s
}

var stamp = regexp.MustCompile(`^\S+`)

// firstAfter finds when a daemon first logged a message after a moment.
func firstAfter(b *testing.B, n *fleet.Node, message string, at time.Time) time.Duration {
	text, err := os.ReadFile(n.LogFile())
	require.NoError(b, err)
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.Contains(line, message) {
			continue
		}
		if t, err := time.Parse(time.RFC3339Nano, stamp.FindString(line)); err == nil && t.After(at) {
			return t.Sub(at)
		}
	}
	return 0
}

func report(b *testing.B, all []steps) {
	column := func(pick func(steps) time.Duration) []time.Duration {
		var out []time.Duration
		for _, s := range all {
			out = append(out, pick(s))
		}
		slices.Sort(out)
		return out
	}
	leased := column(func(s steps) time.Duration { return s.leased })
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(leased[len(leased)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(leased[len(leased)-1].Seconds()*1000, "max-ms")
	b.Logf("%d trials; moments after the fault, p50 / max in ms", len(all))
	for _, row := range []struct {
		name string
		pick func(steps) time.Duration
	}{
		{"leader elected", func(s steps) time.Duration { return s.elected }},
		{"barrier passed", func(s steps) time.Duration { return s.barrier }},
		{"role granted", func(s steps) time.Duration { return s.granted }},
		{"fence raised", func(s steps) time.Duration { return s.raised }},
		{"reconciled", func(s steps) time.Duration { return s.reconciled }},
		{"first lease", func(s steps) time.Duration { return s.leased }},
	} {
		c := column(row.pick)
		b.Logf("  %-15s %7.0f / %7.0f", row.name, c[len(c)/2].Seconds()*1000, c[len(c)-1].Seconds()*1000)
	}
}
