// Making leases: in which order, by whom, and what they record.

package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestLeaseBatch shows that a batch serves the queue in its order, within the
// agents' capacity and labels, and nowhere else is a lease made (§299, §300).
func TestLeaseBatch(t *testing.T) {
	p := newPlane(t, Config{BatchSize: 4})
	g := p.lead()
	require.Zero(t, p.batch(g), "nothing is queued and nobody is there")

	p.submit(8, func(i int, j *runner.JobSpec) {
		switch i {
		case 0:
			j.Labels = []string{"gpu"} // nobody has one: it must hold up nobody
		case 7:
			j.Priority = 5
		}
	})
	require.Zero(t, p.batch(g), "no agent is linked")
	p.agent("a", 3)
	p.agent("b", 2, "arm", "linux")
	p.agent("gone", 9)
	p.exec(`UPDATE forge.agents SET link = NULL, node = NULL WHERE id = 'gone'`)
	p.agent("silent", 9)
	p.exec(`UPDATE forge.agents SET last_seen = coordination.clock() - interval '31 s' WHERE id = 'silent'`)

	require.Equal(t, 4, p.batch(g))
	require.Equal(t, []string{"job-7", "job-1", "job-2", "job-3"},
		all[string](p, `SELECT name FROM forge.jobs WHERE state = 'leased' ORDER BY priority DESC, seq`))
	require.Equal(t, 1, p.batch(g), "five slots are five leases")
	require.Zero(t, p.batch(g))
	require.Equal(t, []string{"a:3", "b:2"}, all[string](p, `SELECT agent_id || ':' || count(*) FROM forge.leases GROUP BY agent_id ORDER BY agent_id`))
	require.Equal(t, one[int](p, `SELECT count(*) FROM forge.leases`), one[int](p, `SELECT count(*) FROM forge.dispatch WHERE state = 'open'`))

	p.complete(all[string](p, activeLeases)[0])
	require.Equal(t, 1, p.batch(g), "a completion frees its slot")

	p.agent("c", 1, "gpu")
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, "job-0", one[string](p, `SELECT j.name FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE l.agent_id = 'c'`))

	for _, sql := range []string{
		`INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at, epoch, generation) SELECT id, 1, 'a', now(), 1, 1 FROM forge.jobs WHERE state = 'queued' LIMIT 1`,
		`UPDATE forge.jobs SET state = 'leased' WHERE state = 'queued'`,
		`UPDATE forge.jobs SET attempt = attempt + 1`,
		`UPDATE forge.leases SET state = 'expired', ended_at = now() WHERE state = 'active'`,
		`UPDATE forge.leases SET epoch = epoch + 1`,
		`UPDATE forge.leases SET agent_id = 'b'`,
		`UPDATE forge.dispatch SET epoch = epoch + 1`,
		`UPDATE forge.dispatch SET state = 'void'`,
		`UPDATE forge.tick SET at = now()`,
	} {
		_, err := p.store.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "FY002", "outside a fence: %s", sql)
	}
}

// TestLeaseRow shows what a lease records (§92, §196).
func TestLeaseRow(t *testing.T) {
	p := newPlane(t, Config{LeaseTTL: 42 * time.Second})
	p.lead()
	g := p.lead() // so that epochs have a past
	p.agent("a", 1)
	run := p.submit(1, nil)
	require.Equal(t, 1, p.batch(g))

	doc, err := runner.Get(t.Context(), p.store, run)
	require.NoError(t, err)
	job := doc.Jobs[0]
	require.Equal(t, runner.JobLeased, job.State)
	require.Equal(t, 1, job.Attempt)
	require.Len(t, job.Leases, 1)
	l := job.Leases[0]
	require.Equal(t, 1, l.Attempt)
	require.Equal(t, "a", l.Agent)
	require.Equal(t, g.Epoch(), l.Epoch)
	require.Equal(t, g.Generation(), l.Generation)
	require.Equal(t, runner.LeaseActive, l.State)
	require.InDelta(t, 42*time.Second, l.ExpiresAt.Sub(l.LeasedAt), float64(time.Millisecond), "both are database time")
	require.EqualValues(t, g.Epoch(), one[int64](p, `SELECT epoch FROM forge.dispatch`))
}

// TestLeaseExpiryUsesDBTime shows that the daemon's clock plays no part: with a
// database hours away from it, a lease lives exactly as long (§196).
func TestLeaseExpiryUsesDBTime(t *testing.T) {
	for _, shift := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		t.Run(shift.String(), func(t *testing.T) {
			p := newPlane(t, Config{Tick: time.Hour})
			require.NoError(t, p.database.ShiftClock(t.Context(), shift))
			g := p.lead()
			_, err := p.Recover(t.Context(), g) // the tick is on the shifted clock from here on
			require.NoError(t, err)
			p.agent("a", 1)
			p.submit(1, nil)
			require.Equal(t, 1, p.batch(g))
			p.expireNow(g)
			lease := all[string](p, activeLeases)
			require.Len(t, lease, 1)
			left := one[time.Duration](p, `SELECT expires_at - coordination.clock() FROM forge.leases`)
			require.InDelta(t, time.Minute, left, float64(5*time.Second))
			p.end(lease[0])
			p.expireNow(g)
			require.Empty(t, all[string](p, activeLeases))
		})
	}
}

// TestLeaseProposesNothing shows that leasing is PostgreSQL's work alone (§287, §289).
func TestLeaseProposesNothing(t *testing.T) {
	p := newPlane(t, Config{})
	g := p.lead()
	p.agent("a", 100)
	p.submit(100, nil)
	before := p.backend.View().Index
	require.Equal(t, 100, p.batch(g))
	for _, l := range all[string](p, activeLeases) {
		p.complete(l)
	}
	require.Equal(t, before, p.backend.View().Index)
}

// TestStaleSchedulerLeaseDoubleRun shows that an epoch that was overtaken can create,
// re-stamp and end nothing, and that the guard is revoked by the refusal (§262, §263).
func TestStaleSchedulerLeaseDoubleRun(t *testing.T) {
	acts := map[string]func(*plane, cluster.RoleGuard) error{
		"lease":   func(p *plane, g cluster.RoleGuard) error { _, err := p.LeaseBatch(p.Context(), g); return err },
		"upkeep":  func(p *plane, g cluster.RoleGuard) error { _, err := p.maintain(p.Context(), g); return err },
		"prune":   func(p *plane, g cluster.RoleGuard) error { _, err := p.prune(p.Context(), g); return err },
		"recover": func(p *plane, g cluster.RoleGuard) error { _, err := p.Recover(p.Context(), g); return err },
		"write": func(p *plane, g cluster.RoleGuard) error { // planned before, written after
			_, err := p.write(g, []pick{{job: one[string](p, `SELECT id FROM forge.jobs WHERE state = 'queued'`), agent: "a"}})
			return err
		},
	}
	p := newPlane(t, Config{})
	p.agent("a", 2)
	p.submit(2, nil)
	g := p.lead()
	require.NoError(t, must(p.write(g, []pick{{job: one[string](p, `SELECT min(id) FROM forge.jobs`), agent: "a"}})))
	p.end(all[string](p, activeLeases)[0])
	before := p.picture()
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			p.overtake(g)
			require.ErrorIs(t, act(p, g), cluster.ErrFenced)
			require.Equal(t, before, p.picture(), "nothing changed")
			require.Equal(t, cluster.GuardRevoked, g.State())
			require.ErrorIs(t, act(p, g), cluster.ErrFenced, "a revoked guard is refused without the database")
			require.ErrorIs(t, act(p, cluster.RoleGuard{}), cluster.ErrFenced, "and so is no guard at all")

			// The service spends the epoch by itself; the one after it is above the other node's.
			require.Eventually(t, func() bool {
				p.endTrees(g.Epoch() + 1)
				return p.backend.View().Role(fsm.SchedulerLeader).Epoch > g.Epoch()
			}, soon, time.Millisecond)
			g = p.lead()
		})
	}
	require.Equal(t, 1, p.batch(g), "the current epoch goes on")
}

func must[T any](_ T, err error) error { return err }

// picture is every leader-owned column.
func (p *plane) picture() string {
	p.Helper()
	return one[string](p, `SELECT jsonb_build_object(
 'jobs', (SELECT jsonb_agg(jsonb_build_array(id, state, attempt) ORDER BY id) FROM forge.jobs),
 'leases', (SELECT jsonb_agg(jsonb_build_array(id, state, epoch, expires_at) ORDER BY id) FROM forge.leases),
 'dispatch', (SELECT jsonb_agg(jsonb_build_array(lease_id, state, epoch) ORDER BY lease_id) FROM forge.dispatch),
 'tick', (SELECT jsonb_build_array(at, epoch) FROM forge.tick))::text`)
}

// TestLeaseSurvivesFailover shows that the next epoch leaves a lease alone: the
// maker's epoch stays, heartbeats and the completion are accepted (§77, §116).
func TestLeaseSurvivesFailover(t *testing.T) {
	p := newPlane(t, Config{})
	maker := p.lead()
	p.agent("a", 1)
	run := p.submit(1, nil)
	require.Equal(t, 1, p.batch(maker))
	lease := all[string](p, activeLeases)[0]

	next := p.lead()
	require.Greater(t, next.Epoch(), maker.Epoch())
	_, err := p.Recover(t.Context(), next)
	require.NoError(t, err)
	require.Zero(t, p.batch(next), "the job is not leased again")
	p.expireNow(next)
	require.Equal(t, []string{lease}, all[string](p, activeLeases))
	require.EqualValues(t, maker.Epoch(), one[int64](p, `SELECT epoch FROM forge.leases`))
	require.EqualValues(t, 1, p.complete(lease))
	doc, err := runner.Get(t.Context(), p.store, run)
	require.NoError(t, err)
	require.Equal(t, runner.RunSucceeded, doc.State)
	require.Equal(t, 1, doc.Jobs[0].Attempt)
}

// unfenced is a scheduler's store with fencing switched off: what is left is PostgreSQL.
type unfenced struct{ p *plane }

func (unfenced) RaiseFence(context.Context, cluster.RoleGuard) error { return nil }
func (u unfenced) Writable() (bool, time.Duration)                   { return u.p.store.Writable() }

func (u unfenced) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	return u.p.store.Batch(ctx, fill)
}

func (u unfenced) Fenced(ctx context.Context, _ cluster.RoleGuard, fill func(*pgx.Batch)) error {
	return u.p.store.Batch(ctx, fill)
}

// TestAtomicLeaseWithoutRaft lets eight schedulers without fences lease the same
// queue at once: no job gets two active leases, and the constraint alone
// refuses a second one (§38).
func TestAtomicLeaseWithoutRaft(t *testing.T) {
	p := newPlane(t, Config{})
	for table, triggers := range map[string]string{
		"jobs": "jobs_leader_columns, jobs_leader_moves", "leases": "leases_leader_columns", "dispatch": "dispatch_leader_columns",
	} {
		for _, trigger := range strings.Split(triggers, ", ") {
			p.exec(fmt.Sprintf(`ALTER TABLE forge.%s DISABLE TRIGGER %s`, table, trigger))
		}
		if table != "jobs" {
			p.exec(fmt.Sprintf(`ALTER TABLE forge.%s ALTER epoch SET DEFAULT 0, ALTER generation SET DEFAULT 0`, table))
		}
	}
	const jobs = 400
	p.agent("a", 1000)
	p.submit(jobs, nil)
	var schedulers sync.WaitGroup
	made := make([]int, 8)
	for i := range made {
		s := New(Config{Store: unfenced{p}, BatchSize: 50})
		schedulers.Go(func() {
			for idle := 0; idle < 3; {
				n, err := s.LeaseBatch(t.Context(), cluster.RoleGuard{})
				if err != nil {
					t.Error(err)
					return
				}
				made[i] += n
				if n == 0 {
					idle++
				}
			}
		})
	}
	schedulers.Wait()
	sum := 0
	for _, n := range made {
		sum += n
	}
	require.Equal(t, jobs, sum)
	require.Equal(t, jobs, one[int](p, `SELECT count(DISTINCT job_id) FROM forge.leases WHERE state = 'active' AND attempt = 1`))
	require.Equal(t, jobs, one[int](p, `SELECT count(*) FROM forge.leases`))

	_, err := p.super.Exec(t.Context(), `INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT job_id, 2, 'a', now() FROM forge.leases LIMIT 1`)
	require.ErrorContains(t, err, "leases_one_active")
}

// TestLoopNeedsGuard shows that a loop does nothing without an active guard and ends with it (§296).
func TestLoopNeedsGuard(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Millisecond})
	spec := p.Spec()
	require.Equal(t, fsm.SchedulerLeader, spec.Role)
	p.agent("a", 1)
	p.submit(2, nil)
	for _, loop := range spec.Loops {
		require.ErrorIs(t, loop.Run(t.Context(), cluster.RoleGuard{}), cluster.ErrFenced, loop.Name)
	}
	require.Zero(t, one[int](p, `SELECT count(*) FROM forge.leases`))

	g := p.lead()
	ended := make(chan error, len(spec.Loops))
	for _, loop := range spec.Loops {
		go func() { ended <- loop.Run(g.Context(), g) }()
	}
	require.Eventually(t, func() bool { return one[int](p, `SELECT count(*) FROM forge.leases`) == 1 }, soon, time.Millisecond)
	next := p.lead()
	for range spec.Loops {
		select {
		case <-ended:
		case <-time.After(soon):
			require.Fail(t, "a loop outlives its guard")
		}
	}
	p.complete(all[string](p, activeLeases)[0])
	require.Equal(t, 1, one[int](p, `SELECT count(*) FROM forge.leases`))
	require.Equal(t, 1, p.batch(next))
}
