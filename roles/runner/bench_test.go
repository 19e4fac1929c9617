// What a submission and a completion cost a daemon.

package runner_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func benchStore(b *testing.B) (*store.Store, *pgx.Conn) {
	db := pgtest.New(b)
	s, err := store.Open(b.Context(), store.Config{Owner: db.Owner, App: db.App, Direct: db.Direct, Cluster: cluster.NewClusterID()})
	require.NoError(b, err)
	b.Cleanup(s.Close)
	require.NoError(b, s.Migrate(b.Context()))
	super, err := pgx.Connect(b.Context(), db.Super)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, super.Close(b.Context())) })
	return s, super
}

func thousand(prefix string) runner.RunSpec {
	spec := runner.RunSpec{Name: "bench"}
	for i := range 1000 {
		spec.Jobs = append(spec.Jobs, runner.JobSpec{Name: fmt.Sprint(prefix, i), Argv: []string{"true"}})
	}
	return spec
}

// BenchmarkSubmit1000 stores one run of 1,000 jobs.
func BenchmarkSubmit1000(b *testing.B) {
	s, _ := benchStore(b)
	spec := thousand("job-")
	for b.Loop() {
		_, _, err := runner.Submit(b.Context(), s, spec, "")
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkComplete ends 2,000 leases of two agents through one daemon, each by its own id.
func BenchmarkComplete(b *testing.B) {
	const each = 1000
	s, super := benchStore(b)
	net := runnertest.NewNetwork()
	b.Cleanup(net.Close)
	net.Start("d1", runner.NewSessions(runner.SessionsConfig{Store: s, Node: "d1"}))
	exec := func(sql string, args ...any) {
		batch := &pgx.Batch{}
		batch.Queue(`SELECT coordination.fence(1::smallint, 1, 7)`)
		batch.Queue(sql, args...)
		require.NoError(b, super.SendBatch(b.Context(), batch).Close())
	}
	_, err := super.Exec(b.Context(), `SELECT coordination.raise_fence(1::smallint, 1, 7, 'node', 'process')`)
	require.NoError(b, err)
	agents := map[string]runner.Link{}
	for _, id := range []string{"a", "b"} {
		l, err := net.Dialer(id).Dial(b.Context(), "d1")
		require.NoError(b, err)
		require.NoError(b, l.Send(b.Context(), runner.Message{Hello: &runner.Hello{Protocol: runner.ProtocolVersion, Session: id, Slots: 1000}}))
		_, err = l.Receive(b.Context())
		require.NoError(b, err)
		agents[id] = l
	}
	for b.Loop() {
		b.StopTimer()
		leases := map[string][]string{}
		for id := range agents {
			run, _, err := runner.Submit(b.Context(), s, thousand(id), "")
			require.NoError(b, err)
			exec(`WITH j AS (UPDATE forge.jobs SET state = 'leased', attempt = 1 WHERE run_id = $1 RETURNING id)
 INSERT INTO forge.leases (job_id, attempt, agent_id, expires_at) SELECT id, 1, $2, coordination.clock() + interval '1 h' FROM j`, run, id)
			rows, err := super.Query(b.Context(), `SELECT l.id::text FROM forge.leases l WHERE agent_id = $1 AND state = 'active'`, id)
			require.NoError(b, err)
			leases[id], err = pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(b, err)
			require.Len(b, leases[id], each)
		}
		b.StartTimer()
		var all sync.WaitGroup
		for id, l := range agents {
			all.Go(func() {
				for _, lease := range leases[id] {
					if err := l.Send(b.Context(), runner.Message{Complete: &runner.Complete{Lease: lease, Outcome: runner.Succeeded}}); err != nil {
						b.Error(err)
					}
				}
			})
			all.Go(func() {
				for n := 0; n < each; {
					m, err := l.Receive(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					if m.Completed != nil {
						n++
					}
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(b.N)*2*each/b.Elapsed().Seconds(), "completions/s")
}
