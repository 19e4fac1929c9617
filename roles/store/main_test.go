// What all tests of the store share: databases, guards and a session under direct control.

package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is where fenced writes of these tests go; seq orders the inserts.
const work = `CREATE TABLE work (seq bigint GENERATED ALWAYS AS IDENTITY, epoch bigint NOT NULL DEFAULT coordination.fenced_epoch(), note text);
	GRANT SELECT, INSERT ON work TO forgeyard_app`

// newDatabase is a migrated database with the work table.
func newDatabase(t testing.TB) *pgtest.Database {
	t.Helper()
	db := pgtest.New(t)
	_, err := session(t, db.Super).Exec(t.Context(), work)
	require.NoError(t, err)
	return db
}

// open is a store on the database, claimed for its cluster.
func open(t testing.TB, db *pgtest.Database, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: cluster.NewClusterID(), Name: "test", ProbeInterval: 50 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// session is a plain connection that ends with the test.
func session(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // it may have been ended by the test
	})
	return c
}

// one is a single value of a query over a superuser's session.
func one[T any](t testing.TB, db *pgtest.Database, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, session(t, db.Super).QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}

// insert queues a row of work.
func insert(note string) func(*pgx.Batch) {
	return func(b *pgx.Batch) { b.Queue("INSERT INTO work (note) VALUES ($1)", note) }
}

func still() error { return nil }

// at is an authority of the scheduler role in generation 1.
func at(epoch int64, owner string) authority {
	return authority{role: int16(fsm.SchedulerLeader), generation: 1, epoch: epoch, owner: owner, incarnation: owner + "-1"}
}

// committee is a backend whose committed view the test writes by hand.
type committee struct {
	self cluster.Identity
	hint chan struct{}

	mu   sync.Mutex
	view fsm.View
}

func newCommittee() *committee {
	return &committee{
		self: cluster.Identity{Cluster: cluster.NewClusterID(), Node: cluster.NewNodeID(), Incarnation: cluster.NewIncarnationID()},
		hint: make(chan struct{}, 1), view: fsm.View{Generation: 1},
	}
}

// grant commits that this process owns the scheduler role under an epoch.
func (c *committee) grant(epoch fsm.Epoch) {
	c.mu.Lock()
	c.view.Index++
	c.view.Roles = []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: epoch, Owner: c.self.Node, Incarnation: c.self.Incarnation}}
	c.mu.Unlock()
	c.changed()
}

func (c *committee) changed() {
	select {
	case c.hint <- struct{}{}:
	default:
	}
}

// vacate commits that nobody owns it.
func (c *committee) vacate() {
	c.mu.Lock()
	c.view.Index++
	c.view.Roles = nil
	c.mu.Unlock()
	c.changed()
}

func (c *committee) Self() cluster.Identity                  { return c.self }
func (c *committee) Changes() (<-chan struct{}, func())      { return c.hint, func() {} }
func (c *committee) Confirmed() time.Time                    { return time.Now() }
func (c *committee) Leadership() (cluster.Leadership, bool)  { return cluster.Leadership{}, false }
func (c *committee) Reports() []cluster.NodeReport           { return nil }
func (c *committee) Peers() []cluster.Peer                   { return nil }
func (c *committee) SetReporter(func() cluster.HealthReport) {}
func (c *committee) StepDown(context.Context, string) error  { return nil }
func (c *committee) Close() error                            { return nil }

func (c *committee) View() cluster.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cluster.View{View: c.view, Confirmed: time.Now()}
}

func (c *committee) LinearizableView(context.Context) (cluster.View, error) { return c.View(), nil }

// Propose obeys: whatever ends a spent epoch vacates the role, if it is still at that epoch.
func (c *committee) Propose(_ context.Context, p fsm.Proposal) (cluster.Commit, error) {
	var spent fsm.Epoch
	switch cmd := p.Command.(type) {
	case fsm.BumpEpoch:
		spent = cmd.ExpectedEpoch
	case fsm.ReleaseRole:
		spent = cmd.ExpectedEpoch
	}
	if c.View().Role(fsm.SchedulerLeader).Epoch == spent {
		c.vacate()
	}
	return cluster.Commit{}, nil
}

// holder is a process that holds the scheduler role as far as the Service is concerned.
type holder struct {
	*committee
	service *cluster.Service
	last    fsm.Epoch
}

func newHolder(t testing.TB) *holder {
	t.Helper()
	h := &holder{committee: newCommittee()}
	h.service = cluster.NewService(cluster.ServiceConfig{Backend: h.committee, Roles: fsm.Roles()})
	h.service.Start()
	t.Cleanup(func() {
		h.end(t)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, h.service.Close(ctx))
	})
	return h
}

// end takes the role away and lets its tree end.
func (h *holder) end(t testing.TB) {
	t.Helper()
	h.vacate()
	require.Eventually(t, func() bool { return h.service.Desired(fsm.SchedulerLeader).Epoch == 0 }, waitBound, time.Millisecond)
	h.service.Report(fsm.SchedulerLeader, h.last, cluster.TreeEnded, "", "")
}

// granted is a guard that may raise its fence and no more.
func (h *holder) granted(t testing.TB, epoch fsm.Epoch) (g cluster.RoleGuard) {
	t.Helper()
	if h.last != epoch {
		h.end(t)
		h.last = epoch
		h.grant(epoch)
	}
	require.Eventually(t, func() (ok bool) {
		var err error
		g, err = h.service.AcquireRole(t.Context(), fsm.SchedulerLeader)
		return err == nil && g.Epoch() == epoch
	}, waitBound, time.Millisecond)
	return g
}

// fenced is a guard whose fence is raised in s.
func (h *holder) fenced(t testing.TB, s *Store, epoch fsm.Epoch) cluster.RoleGuard {
	t.Helper()
	g := h.granted(t, epoch)
	require.NoError(t, s.RaiseFence(t.Context(), g))
	h.service.Report(fsm.SchedulerLeader, epoch, cluster.TreeFenced, "", "")
	require.Eventually(t, func() bool { return g.Check() == nil }, waitBound, time.Millisecond)
	return g
}

// Bounds of waiting for a fact.
const (
	waitBound  = 10 * time.Second
	pollEvery  = 5 * time.Millisecond
	probeNever = time.Hour
)

func ping(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) }

// nextEpoch is above the fence in the database and at least least.
func nextEpoch(t testing.TB, db *pgtest.Database, least int) fsm.Epoch {
	t.Helper()
	return fsm.Epoch(max(int64(least), 1+one[int64](t, db, "SELECT coalesce(max(epoch), 0) FROM coordination.fence")))
}
