// The product's side: a real scheduler under a guard of the standalone engine, a real daemon's sessions, and its store.

package peers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// plane is one daemon's job plane: every loop that a daemon runs, nothing simulated.
type plane struct {
	store    *store.Store
	sessions *runner.Sessions
	sched    *scheduler.Scheduler
	super    *pgxpool.Pool
	held     atomic.Bool // nothing is leased
}

func newPlane(b *testing.B, srv *postgres.Server, db string) *plane {
	b.Helper()
	require.NoError(b, srv.Bootstrap(b.Context(), db))
	p := &plane{}
	backend, err := local.Open(local.Config{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, backend.Close()) })
	owner, app := srv.DSN("forgeyard_owner", db), srv.DSN("forgeyard_app", db)
	p.store, err = store.Open(b.Context(), store.Config{Owner: owner, App: app, Direct: app, Cluster: backend.Self().Cluster, Name: db})
	require.NoError(b, err)
	b.Cleanup(p.store.Close)
	require.NoError(b, p.store.Migrate(b.Context()))
	p.super, err = pgxpool.New(b.Context(), srv.DSN(postgres.Superuser, db))
	require.NoError(b, err)
	b.Cleanup(p.super.Close)

	p.sessions = runner.NewSessions(runner.SessionsConfig{Store: p.store, Node: "daemon", Wake: func() { p.sched.Wake() }})
	p.sched = scheduler.New(scheduler.Config{Store: p.store, Dispatched: p.sessions.Wake, Hold: func() string {
		if p.held.Load() {
			return "the round has not begun"
		}
		return ""
	}})
	p.held.Store(true)
	p.lead(b, backend)
	return p
}

// lead takes the scheduler's role and runs its loops until the benchmark ends.
func (p *plane) lead(b *testing.B, backend *local.Backend) {
	b.Helper()
	service := cluster.NewService(cluster.ServiceConfig{
		Backend: backend, Roles: []fsm.Role{fsm.SchedulerLeader}, Exit: func(code int, reason string) { b.Errorf("exit %d: %s", code, reason) },
	})
	service.Start()
	propose := func(c fsm.Command) {
		_, err := backend.Propose(b.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
		require.NoError(b, err)
	}
	self := backend.Self()
	leader, ok := backend.Leadership()
	require.True(b, ok)
	propose(fsm.BumpEpoch{Term: leader.Term, ExpectedEpoch: backend.View().LeaderEpoch.Epoch, Node: self.Node, Incarnation: self.Incarnation})
	propose(fsm.AssignRole{
		Leader: backend.View().LeaderEpoch, Role: fsm.SchedulerLeader, ExpectedEpoch: backend.View().Role(fsm.SchedulerLeader).Epoch,
		Owner: self.Node, Incarnation: self.Incarnation,
	})
	var guard cluster.RoleGuard
	waitFor(b, func() (granted bool) {
		var err error
		guard, err = service.AcquireRole(b.Context(), fsm.SchedulerLeader)
		return err == nil
	})
	spec := p.sched.Spec()
	require.NoError(b, spec.Raise(b.Context(), guard))
	service.Report(fsm.SchedulerLeader, guard.Epoch(), cluster.TreeFenced, "", "")
	waitFor(b, func() bool { return guard.State() == cluster.GuardFenced })
	_, err := spec.Reconcile(b.Context(), guard)
	require.NoError(b, err)
	service.Report(fsm.SchedulerLeader, guard.Epoch(), cluster.TreeActive, "", "")
	waitFor(b, func() bool { return guard.State() == cluster.GuardActive })

	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for _, l := range spec.Loops {
		loops.Go(func() {
			if err := l.Run(ctx, guard); err != nil && ctx.Err() == nil {
				b.Errorf("loop %s: %v", l.Name, err)
			}
		})
	}
	b.Cleanup(func() {
		cancel()
		loops.Wait()
		closing, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		ended := make(chan struct{})
		var reporter sync.WaitGroup
		reporter.Go(func() { // plays the actor system: what is revoked ends
			for t := time.NewTicker(time.Millisecond); ; {
				select {
				case <-ended:
					t.Stop()
					return
				case <-t.C:
					service.Report(fsm.SchedulerLeader, guard.Epoch(), cluster.TreeEnded, "", "")
				}
			}
		})
		require.NoError(b, service.Close(closing))
		close(ended)
		reporter.Wait()
	})
}

// thousand is a run of 1,000 jobs that do nothing.
func thousand() runner.RunSpec {
	spec := runner.RunSpec{Name: "nothing"}
	for i := range 1000 {
		spec.Jobs = append(spec.Jobs, runner.JobSpec{Name: fmt.Sprint("job-", i), Argv: []string{"true"}})
	}
	return spec
}

// insert submits runs of 1,000 jobs each.
func (p *plane) insert(b *testing.B, thousands int) {
	b.Helper()
	spec := thousand()
	for range thousands {
		_, _, err := runner.Submit(b.Context(), p.store, spec, "")
		require.NoError(b, err)
	}
}

// drain lets the scheduler go and returns how long it took until every job had succeeded.
func (p *plane) drain(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	p.held.Store(false)
	p.sched.Wake()
	waitFor(b, func() bool {
		var left int
		require.NoError(b, p.super.QueryRow(b.Context(), `SELECT count(*) FROM (
			SELECT FROM (SELECT FROM forge.jobs WHERE state = 'queued' LIMIT 1) q UNION ALL SELECT FROM (SELECT FROM forge.leases WHERE state = 'active' LIMIT 1) l) x`).Scan(&left))
		return left == 0
	})
	took := time.Since(began)
	p.held.Store(true)
	var unfit int
	require.NoError(b, p.super.QueryRow(b.Context(), `SELECT count(*) FROM forge.jobs WHERE state <> 'succeeded' OR attempt <> 1`).Scan(&unfit))
	require.Zero(b, unfit, "jobs that did not succeed at the first attempt")
	return took
}

func (p *plane) tidy(b *testing.B) {
	_, err := p.super.Exec(b.Context(), `VACUUM (ANALYZE)`)
	require.NoError(b, err)
}

// linked waits until so many agents hold a link.
func (p *plane) linked(b *testing.B, n int) {
	b.Helper()
	waitFor(b, func() bool {
		var have int
		err := p.super.QueryRow(b.Context(), `SELECT count(*) FROM forge.agents WHERE link IS NOT NULL`).Scan(&have)
		require.True(b, err == nil || err == pgx.ErrNoRows, "%v", err)
		return have == n
	})
}
