// The fixture of these tests: a real database, a real coordination service on the standalone engine, one scheduler.

package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = 30 * time.Second

type plane struct {
	testing.TB
	database *pgtest.Database
	super    *pgx.Conn // sees and does everything; plays the outside world
	store    *store.Store
	backend  *local.Backend
	service  *cluster.Service
	*Scheduler
}

func newPlane(t testing.TB, cfg Config) *plane {
	t.Helper()
	p := &plane{TB: t, database: pgtest.New(t)}
	ctx := t.Context()
	var err error
	p.backend, err = local.Open(local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.backend.Close()) })
	p.store, err = store.Open(ctx, store.Config{
		Owner: p.database.Owner, App: p.database.App, Direct: p.database.Direct, Cluster: p.backend.Self().Cluster, Name: t.Name(),
	})
	require.NoError(t, err)
	t.Cleanup(p.store.Close)
	require.NoError(t, p.store.Migrate(ctx))
	p.service = cluster.NewService(cluster.ServiceConfig{
		Backend: p.backend, Roles: []fsm.Role{fsm.SchedulerLeader},
		Exit: func(code int, reason string) { t.Errorf("exit %d: %s", code, reason) },
	})
	p.service.Start()
	t.Cleanup(p.closeService)
	p.super, err = pgx.Connect(ctx, p.database.Super)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.super.Close(context.WithoutCancel(ctx))) })
	cfg.Store = p.store
	p.Scheduler = New(cfg)
	return p
}

// closeService plays the actor system while the service closes: what is revoked ends.
func (p *plane) closeService() {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- p.service.Close(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-closed:
			require.NoError(p, err)
			return
		case <-tick.C:
			p.endTrees(p.backend.View().Epoch + 1)
		}
	}
}

// endTrees reports that nothing of the epochs below works any more.
func (p *plane) endTrees(below fsm.Epoch) {
	for e := fsm.Epoch(1); e < below; e++ {
		p.service.Report(fsm.SchedulerLeader, e, cluster.TreeEnded, "", "")
	}
}

func (p *plane) propose(c fsm.Command) fsm.Epoch {
	p.Helper()
	commit, err := p.backend.Propose(p.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(p, err)
	return commit.Epoch
}

// lead takes the next scheduler epoch, as a failover would, and returns its active guard.
func (p *plane) lead() cluster.RoleGuard {
	p.Helper()
	self, before := p.backend.Self(), p.backend.View().Role(fsm.SchedulerLeader)
	if before.Vacant() {
		leader, ok := p.backend.Leadership()
		require.True(p, ok)
		p.propose(fsm.BumpEpoch{Term: leader.Term, ExpectedEpoch: p.backend.View().LeaderEpoch.Epoch, Node: self.Node, Incarnation: self.Incarnation})
		p.propose(fsm.AssignRole{
			Leader: p.backend.View().LeaderEpoch, Role: fsm.SchedulerLeader, ExpectedEpoch: before.Epoch, Owner: self.Node, Incarnation: self.Incarnation,
		})
	} else {
		p.propose(fsm.BumpEpoch{Role: fsm.SchedulerLeader, ExpectedEpoch: before.Epoch, Node: self.Node, Incarnation: self.Incarnation})
	}
	epoch := p.backend.View().Role(fsm.SchedulerLeader).Epoch
	var g cluster.RoleGuard
	require.Eventually(p, func() bool {
		p.endTrees(epoch)
		var err error
		g, err = p.service.AcquireRole(p.Context(), fsm.SchedulerLeader)
		return err == nil && g.Epoch() == epoch
	}, soon, time.Millisecond)
	require.NoError(p, p.store.RaiseFence(p.Context(), g))
	p.report(g, cluster.TreeFenced, cluster.GuardFenced)
	p.report(g, cluster.TreeActive, cluster.GuardActive)
	return g
}

func (p *plane) report(g cluster.RoleGuard, ev cluster.TreeEvent, want cluster.GuardState) {
	p.Helper()
	p.service.Report(fsm.SchedulerLeader, g.Epoch(), ev, "", "")
	require.Eventually(p, func() bool { return g.State() == want }, soon, time.Millisecond)
}

// overtake moves the fence above every epoch of this cluster's, as another fleet member's would, without telling the guard.
func (p *plane) overtake(g cluster.RoleGuard) {
	p.Helper()
	p.exec(`SELECT coordination.raise_fence(1::smallint, $1, $2, 'another node', 'another process')`, int64(g.Generation()), int64(g.Epoch())+1)
}

// Writable is for the stores that embed a plane.
func (p *plane) Writable() (bool, time.Duration) { return p.store.Writable() }

func (p *plane) exec(sql string, args ...any) int64 {
	p.Helper()
	tag, err := p.super.Exec(p.Context(), sql, args...)
	require.NoError(p, err)
	return tag.RowsAffected()
}

// one reads a single value.
func one[T any](p *plane, sql string, args ...any) T {
	p.Helper()
	var v T
	require.NoError(p, p.super.QueryRow(p.Context(), sql, args...).Scan(&v))
	return v
}

// all reads one column.
func all[T any](p *plane, sql string, args ...any) []T {
	p.Helper()
	rows, err := p.super.Query(p.Context(), sql, args...)
	require.NoError(p, err)
	v, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(p, err)
	return v
}

// agent records an agent as a daemon would when it links.
func (p *plane) agent(id string, slots int, labels ...string) {
	p.Helper()
	if labels == nil {
		labels = []string{}
	}
	p.exec(`INSERT INTO forge.agents (id, session, link, node, slots, labels) VALUES ($1, 'session-' || $1, 'link-' || $1, 'node', $2, $3)`, id, slots, labels)
}

// submit stores a run of n small jobs, changed one by one, and returns its id.
func (p *plane) submit(n int, change func(i int, j *runner.JobSpec)) string {
	p.Helper()
	spec := runner.RunSpec{Name: "run"}
	for i := range n {
		j := runner.JobSpec{Name: "job-" + strconv.Itoa(i), Argv: []string{"true"}}
		if change != nil {
			change(i, &j)
		}
		spec.Jobs = append(spec.Jobs, j)
	}
	id, created, err := runner.Submit(p.Context(), p.store, spec, "")
	require.NoError(p, err)
	require.True(p, created)
	return id
}

// job stores one job of a run of its own submission, blocked when it needs others, and returns its id.
func (p *plane) job(run, name, queue string, needs ...string) string {
	p.Helper()
	p.exec(`INSERT INTO forge.runs (id, name, request_digest, queue) VALUES ($1, 'run', decode(repeat('00', 32), 'hex'), $2) ON CONFLICT DO NOTHING`, run, queue)
	if needs == nil {
		needs = []string{}
	}
	p.exec(`UPDATE forge.jobs SET needed = true WHERE run_id = $1 AND name = ANY ($2)`, run, needs)
	return one[string](p, `INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms, queue, needs, unmet, state)
		VALUES ('J' || lpad($2, 25, '0'), $1, $2, '[{"name":"s","argv":["true"]}]', 1000, $3, $4::text[], cardinality($4::text[]),
		        CASE WHEN cardinality($4::text[]) > 0 THEN 'blocked' ELSE 'queued' END) RETURNING id`, run, name, queue, needs)
}

// run is a valid run id.
func run(n int) string { return fmt.Sprintf("01R%023d", n) }

// states are "name state" of every job, by id.
func (p *plane) states() []string {
	p.Helper()
	return all[string](p, `SELECT name || ' ' || state FROM forge.jobs ORDER BY id`)
}

// batch makes one lease batch and requires it to be accepted.
func (p *plane) batch(g cluster.RoleGuard) int {
	p.Helper()
	n, err := p.LeaseBatch(p.Context(), g)
	require.NoError(p, err)
	return n
}

// write makes the leases of a plan that was made elsewhere.
func (p *plane) write(g cluster.RoleGuard, picks []pick) (int, error) {
	l := p.ledgerOf(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picks = picks
	return p.trip(p.Context(), g, l)
}

// complete ends a lease as its agent would.
func (p *plane) complete(lease string) int64 {
	p.Helper()
	n := p.exec(`UPDATE forge.leases SET state = 'done', outcome = 'succeeded', ended_at = coordination.clock() WHERE id = $1::text::uuid AND state = 'active'`, lease)
	p.exec(`UPDATE forge.jobs j SET state = 'succeeded', finished_at = coordination.clock() FROM forge.leases l WHERE l.id = $1::text::uuid AND j.id = l.job_id AND j.state = 'leased' AND l.state = 'done'`, lease)
	return n
}

// cancel asks for the end of a run as a client would.
func (p *plane) cancel(run string) {
	p.Helper()
	p.exec(`UPDATE forge.jobs SET cancel_requested_at = coordination.clock() WHERE run_id = $1 AND finished_at IS NULL`, run)
	p.exec(`UPDATE forge.leases l SET cancel_requested_at = coordination.clock() FROM forge.jobs j WHERE j.id = l.job_id AND j.run_id = $1 AND l.state = 'active'`, run)
}

// end expires a lease's time now.
func (p *plane) end(lease string) {
	p.Helper()
	require.EqualValues(p, 1, p.exec(`UPDATE forge.leases SET expires_at = coordination.clock() - interval '1 ms' WHERE id = $1::text::uuid`, lease))
}

func (p *plane) expireNow(g cluster.RoleGuard) {
	p.Helper()
	_, err := p.maintain(p.Context(), g)
	require.NoError(p, err)
}

const activeLeases = `SELECT id::text FROM forge.leases WHERE state = 'active' ORDER BY leased_at, id`

func epoch(g cluster.RoleGuard) string { return strconv.FormatUint(uint64(g.Epoch()), 10) }
