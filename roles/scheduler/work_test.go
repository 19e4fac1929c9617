// Scheduler, daemons and agents together.

package scheduler

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
	"github.com/forgeyard/forgeyard/testkit/journal"
)

// leading runs the role under the next epoch as the actor system would, until stop or the end of the epoch.
func (p *plane) leading() (g cluster.RoleGuard, stop func()) {
	p.Helper()
	g = p.lead()
	_, err := p.Reconcile(p.Context(), g)
	require.NoError(p, err)
	ctx, cancel := context.WithCancel(g.Context())
	var loops sync.WaitGroup
	for _, l := range p.Spec().Loops {
		loops.Go(func() { _ = l.Run(ctx, g) }) // the guard's end is the only error here
	}
	return g, func() { cancel(); loops.Wait() }
}

// fleet starts n agents that run tasks in process and returns their directories.
func (p *plane) fleet(net *runnertest.Network, name string, n, slots int, daemons ...string) []string {
	p.Helper()
	var dirs []string
	var agents sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range n {
		dir := p.TempDir()
		dirs = append(dirs, dir)
		a, err := runner.NewAgent(runner.AgentConfig{
			Endpoints: daemons, Dialer: net.Dialer(fmt.Sprintf("%s-%d", name, i)), Dir: dir, Slots: slots,
			Resolve: func(context.Context, string) ([]string, error) { return nil, nil },
			Executor: runner.ExecutorFunc(func(_ context.Context, t runner.Task, out io.Writer) runner.Exit {
				code := 0
				_, _ = fmt.Fprintln(out, t.Job)
				return runner.Exit{Code: &code}
			}),
			Timing: runner.Timing{Retry: 200 * time.Millisecond},
		})
		require.NoError(p, err)
		agents.Go(func() {
			if err := a.Run(ctx); err != nil {
				p.Error(err)
			}
		})
	}
	p.Cleanup(func() { cancel(); agents.Wait() })
	return dirs
}

// starts counts, over the agents' own logs, how often each (job, attempt) was started.
func (p *plane) starts(dirs []string) map[string]int {
	p.Helper()
	n := map[string]int{}
	for _, dir := range dirs {
		entries, err := journal.Read(dir)
		require.NoError(p, err)
		for _, e := range entries {
			if e.What == runner.EntryStart {
				n[fmt.Sprintf("%s/%d", e.Job, e.Attempt)]++
			}
		}
	}
	return n
}

func (p *plane) daemon(net *runnertest.Network, addr string) *runner.Sessions {
	s := runner.NewSessions(runner.SessionsConfig{Store: p.store, Node: addr, Wake: p.Wake, Timing: runner.Timing{Poll: 20 * time.Millisecond, Claim: 2 * time.Second}})
	net.Start(addr, s)
	return s
}

// TestEveryJobStartsOnce runs 1,000 jobs over four agents and two daemons while
// the scheduler's epoch changes twice and one daemon goes away: every job ends,
// each (job, attempt) was started once, and no job needed a second attempt.
func TestEveryJobStartsOnce(t *testing.T) {
	p := newPlane(t, Config{Tick: 50 * time.Millisecond})
	net := runnertest.NewNetwork()
	t.Cleanup(net.Close)
	p.daemon(net, "d1")
	p.daemon(net, "d2")
	dirs := append(p.fleet(net, "x", 2, 16, "d1", "d2"), p.fleet(net, "y", 2, 16, "d2", "d1")...)
	const jobs = 1000
	p.submit(jobs, nil)
	_, stop := p.leading()
	done := func(n int) func() bool {
		return func() bool { return one[int](p, `SELECT count(*) FROM forge.jobs WHERE state = 'succeeded'`) >= n }
	}
	require.Eventually(t, done(jobs/5), soon, 5*time.Millisecond)
	_, stopNext := p.leading() // revokes the first epoch under load
	stop()
	require.Eventually(t, done(2*jobs/5), soon, 5*time.Millisecond)
	net.Stop("d1")
	_, stopLast := p.leading()
	stopNext()
	defer stopLast()
	require.Eventually(t, done(jobs), soon, 5*time.Millisecond)

	starts := p.starts(dirs)
	require.Len(t, starts, jobs)
	for attempt, n := range starts {
		require.Equal(t, 1, n, attempt)
	}
	require.Equal(t, jobs, one[int](p, `SELECT sum(attempt) FROM forge.jobs`))
	require.Zero(t, one[int](p, `SELECT count(*) FROM forge.leases WHERE state = 'active'`))
	require.Greater(t, one[int](p, `SELECT count(DISTINCT epoch) FROM forge.leases`), 1, "more than one epoch leased")
}

// TestDispatchIdempotent replays every order after a failover: what has
// started is not started again (§85, §88).
func TestDispatchIdempotent(t *testing.T) {
	p := newPlane(t, Config{Tick: 20 * time.Millisecond})
	net := runnertest.NewNetwork()
	t.Cleanup(net.Close)
	p.daemon(net, "d1")
	dirs := p.fleet(net, "x", 1, 8, "d1")
	_, stop := p.leading()
	p.submit(20, nil)
	p.Wake()
	finished := func() bool { return one[int](p, `SELECT count(*) FROM forge.jobs WHERE state = 'succeeded'`) == 20 }
	require.Eventually(t, finished, soon, 5*time.Millisecond)
	stop()

	// As if no delivery and no completion had been recorded.
	for _, table := range []string{"jobs", "leases", "dispatch"} {
		p.exec(`ALTER TABLE forge.` + table + ` DISABLE TRIGGER USER`)
	}
	p.exec(`UPDATE forge.jobs SET state = 'leased', finished_at = NULL`)
	p.exec(`UPDATE forge.leases SET state = 'active', ended_at = NULL, outcome = NULL`)
	p.exec(`UPDATE forge.dispatch SET state = 'open', delivered_at = NULL`)
	for _, table := range []string{"jobs", "leases", "dispatch"} {
		p.exec(`ALTER TABLE forge.` + table + ` ENABLE TRIGGER USER`)
	}
	p.exec(`UPDATE forge.jobs SET attempt_limit = 2`)
	_, stop = p.leading()
	defer stop()
	require.Eventually(t, finished, soon, 5*time.Millisecond, "the agent gives each lease up, the second attempt runs")
	starts := p.starts(dirs)
	require.Len(t, starts, 40)
	for attempt, n := range starts {
		require.Equal(t, 1, n, attempt)
	}
}
