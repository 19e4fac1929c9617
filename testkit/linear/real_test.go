// Histories of real engines: rivals on the committed state, owners and leases in PostgreSQL.

package linear

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// rivals propose and read at the same time, each on what it last saw.
func rivals(t *testing.T, b cluster.Backend) {
	t.Helper()
	self := b.Self()
	l, leads := b.Leadership()
	require.True(t, leads)
	propose := func(c fsm.Command) {
		_, _ = b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c}) // a lost rivalry is part of the history
	}
	propose(fsm.BumpEpoch{Term: l.Term, Node: self.Node, Incarnation: self.Incarnation})
	var all sync.WaitGroup
	for n := range 5 {
		all.Go(func() {
			for i := range 25 {
				v, err := b.LinearizableView(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				g := v.Role(role)
				switch {
				case (n+i)%5 == 0 && !g.Vacant():
					propose(fsm.ReleaseRole{Role: role, ExpectedEpoch: g.Epoch, Node: g.Owner, Incarnation: g.Incarnation, Code: "FY-TEST-001", Reason: "rivalry"})
				case (n+i)%2 == 0:
					propose(fsm.BumpEpoch{Role: role, ExpectedEpoch: g.Epoch, Node: self.Node, Incarnation: self.Incarnation})
				default:
					propose(fsm.AssignRole{Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: g.Epoch, Owner: self.Node, Incarnation: self.Incarnation})
				}
			}
		})
	}
	all.Wait()
}

func engine(t *testing.T) cluster.Backend {
	t.Helper()
	b, err := local.Open(local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestRivalsOnTheLocalEngine(t *testing.T) {
	var rec Recorder
	rivals(t, rec.Watch(engine(t)))
	got := map[string]int{}
	for _, g := range rec.Grants() {
		got[grantNames[g.Kind]+" "+g.Outcome.String()]++
	}
	t.Log(got)
	for _, what := range []string{"assign done", "renew done", "release done", "observe done"} {
		require.Positive(t, got[what], "%v", got)
	}
	require.Positive(t, got["assign refused"]+got["renew refused"]+got["release refused"], "nobody lost: %v", got)
	require.NoError(t, Grants(rec.Grants()))
}

// lagging answers linearizable reads from the view before the newest.
type lagging struct {
	cluster.Backend
	mu   sync.Mutex
	last cluster.View
}

func (l *lagging) LinearizableView(ctx context.Context) (cluster.View, error) {
	v, err := l.Backend.LinearizableView(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.last
	l.last = v
	return old, err
}

// TestLaggingReadsAreRefused: the same rivals on an engine with one planted fault.
func TestLaggingReadsAreRefused(t *testing.T) {
	var rec Recorder
	rivals(t, rec.Watch(&lagging{Backend: engine(t)}))
	require.ErrorContains(t, Grants(rec.Grants()), "not linearizable")
}

// TestRetryIsOneOperation: a request that is sent again is not done twice, and a
// refusal of the second attempt says nothing of the first.
func TestRetryIsOneOperation(t *testing.T) {
	var rec Recorder
	b := rec.Watch(engine(t))
	self := b.Self()
	l, _ := b.Leadership()
	lead, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.BumpEpoch{Term: l.Term, Node: self.Node, Incarnation: self.Incarnation}})
	require.NoError(t, err)
	p := fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.AssignRole{
		Leader: fsm.LeaderEpoch{Term: l.Term, Epoch: lead.Epoch}, Role: role, Owner: self.Node, Incarnation: self.Incarnation}}
	for range 3 {
		_, err := b.Propose(t.Context(), p)
		require.NoError(t, err)
	}
	require.Len(t, rec.Grants(), 1)
	require.Equal(t, Done, rec.Grants()[0].Outcome)
	require.NoError(t, Grants(rec.Grants()))
}

// TestRecordedRows: what the triggers write of real takeovers and leases is
// linearizable, and stops being so when a row is planted.
func TestRecordedRows(t *testing.T) {
	ctx, db := t.Context(), pgtest.New(t)
	s, err := store.Open(ctx, store.Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: cluster.NewClusterID()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Migrate(ctx))
	conn, err := pgx.Connect(ctx, db.Super)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	require.NoError(t, history.Install(ctx, conn))

	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err)
	}
	run, _, err := runner.Submit(ctx, s, runner.RunSpec{Name: "run", Jobs: []runner.JobSpec{{Name: "job", Argv: []string{"true"}}}}, "")
	require.NoError(t, err)
	for epoch := range 3 {
		exec(`SELECT coordination.raise_fence(1::smallint, 1, $1, 'node', $2)`, epoch+5, fmt.Sprint("process ", epoch))
		b := &pgx.Batch{}
		b.Queue(`SELECT coordination.fence(1::smallint, 1, $1)`, epoch+5)
		b.Queue(`UPDATE forge.leases SET state = 'expired', ended_at = coordination.clock() WHERE state = 'active'`)
		b.Queue(`WITH j AS (UPDATE forge.jobs SET state = 'leased', attempt = attempt + 1 WHERE run_id = $1 RETURNING id, attempt)
 INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT id, attempt, 'a', coordination.clock() + interval '20 s' FROM j`, run)
		require.NoError(t, conn.SendBatch(ctx, b).Close())
	}
	exec(`UPDATE forge.leases SET state = 'done', outcome = 'succeeded', ended_at = coordination.clock() WHERE state = 'active'`)

	verdicts := func() (grants, leases error) {
		g, l, err := Recorded(ctx, conn)
		require.NoError(t, err)
		return Grants(g), Leases(l)
	}
	g, l, err := Recorded(ctx, conn)
	require.NoError(t, err)
	require.Len(t, g, 3+3, "each owner raised its fence and then wrote")
	require.Len(t, l, 6)
	grants, leases := verdicts()
	require.NoError(t, grants)
	require.NoError(t, leases)

	exec(`INSERT INTO hist (kind, role, epoch, node, inc, subject, attempt, state) SELECT kind, role, epoch, node, inc, subject, attempt + 5, state FROM hist
 WHERE kind = 'write' AND epoch = 5 LIMIT 1`) // as if a paused owner had made a lease
	grants, leases = verdicts()
	require.ErrorContains(t, grants, "not linearizable")
	require.NoError(t, leases, "the job was free")
	exec(`INSERT INTO hist (kind, subject, attempt, state) SELECT kind, subject, attempt, state FROM hist WHERE kind = 'complete'`) // after that lease
	_, leases = verdicts()
	require.ErrorContains(t, leases, "not linearizable")
}
