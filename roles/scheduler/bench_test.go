// What leases and a new leader cost.

package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/store"
)

// bare sends what the scheduler sends, in one transaction too, with the fence's note but without its lock, row and comparison.
type bare struct{ *plane }

func (bare) RaiseFence(context.Context, cluster.RoleGuard) error { return nil }

func (b bare) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	return b.store.Batch(ctx, fill)
}

func (b bare) Fenced(ctx context.Context, _ cluster.RoleGuard, fill func(*pgx.Batch)) error {
	return b.store.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(`SELECT set_config('forgeyard.fence', '1:1:1', true)`)
		fill(q)
	})
}

// backlog stores n queued jobs in runs of 1,000, spread over queues and kinds of
// labels. It is the database's work alone, so that millions take seconds.
func (p *plane) backlog(n, queues, kinds int) {
	p.Helper()
	p.exec(`INSERT INTO forge.runs (id, name, request_digest, queue)
		SELECT 'R' || lpad(i::text, 25, '0'), 'run', decode(repeat('00', 32), 'hex'), 'queue-' || (i % $2) FROM generate_series(0, ($1::int - 1) / 1000) i`, n, queues)
	p.exec(`ALTER TABLE forge.jobs DISABLE TRIGGER jobs_born`)
	p.exec(`INSERT INTO forge.jobs (id, run_id, name, steps, timeout_ms, queue, labels)
		SELECT 'J' || lpad(i::text, 25, '0'), 'R' || lpad((i / 1000)::text, 25, '0'), 'job-' || i, '[{"name":"s","argv":["true"]}]', 1000,
		       'queue-' || (i / 1000 % $2), CASE WHEN i % $3 = 0 THEN '{}'::text[] ELSE ARRAY['kind-' || (i % $3)] END
		  FROM generate_series(0, $1::int - 1) i`, n, queues, kinds)
	p.exec(`ALTER TABLE forge.jobs ENABLE TRIGGER jobs_born`)
}

// BenchmarkLease measures whole batches, planned and written, on 20 agents with
// ample slots: leases/s. What was leased is completed between the batches, not timed.
func BenchmarkLease(b *testing.B) {
	for _, size := range []int{1, 16, 100, 256, 1000} {
		for _, mode := range []string{"fenced", "bare"} {
			b.Run(fmt.Sprintf("%s/%d", mode, size), func(b *testing.B) {
				p := newPlane(b, Config{BatchSize: size})
				for i := range 20 {
					p.agent(fmt.Sprintf("agent-%02d", i), 1024)
				}
				p.backlog(size*(b.N+1), 4, 1)
				p.exec(`ANALYZE forge.jobs`)
				g := p.lead()
				if mode == "bare" {
					p.Scheduler = New(Config{Store: bare{p}, BatchSize: size})
				}
				require.Equal(b, size, p.batch(g)) // what was read comes with the batch before
				b.ResetTimer()
				for range b.N {
					b.StopTimer()
					p.completeAll()
					b.StartTimer()
					require.Equal(b, size, p.batch(g))
				}
				b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "leases/s")
			})
		}
	}
}

func (p *plane) completeAll() {
	p.exec(`WITH ended AS (UPDATE forge.leases SET state = 'done', outcome = 'succeeded', ended_at = now() WHERE state = 'active' RETURNING job_id)
		UPDATE forge.jobs j SET state = 'succeeded', finished_at = now() FROM ended WHERE j.id = ended.job_id`)
}

// BenchmarkReconcile measures what a new leader does before its first lease,
// and the first batch, with a long queue; MiB is what the heap grew by.
func BenchmarkReconcile(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlane(b, Config{})
			for i := range 20 {
				p.agent(fmt.Sprintf("agent-%02d", i), 1024)
			}
			p.backlog(n, 10, 10)
			var grown, first float64
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				p.exec(`UPDATE forge.agents SET last_seen = coordination.clock()`)
				g := p.lead()
				before := heapMiB()
				b.StartTimer()
				_, err := p.Recover(b.Context(), g)
				b.StopTimer()
				require.NoError(b, err)
				grown = max(grown, heapMiB()-before)
				began := time.Now()
				require.Equal(b, 256, p.batch(g))
				first += time.Since(began).Seconds()
				b.StartTimer()
			}
			b.ReportMetric(grown, "MiB")
			b.ReportMetric(1000*first/float64(b.N), "ms/first-batch")
		})
	}
}

func heapMiB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkFirstTransaction measures what stands between a raised fence and the
// first leases, on sessions that have planned it ahead and on those that have not, in turns.
func BenchmarkFirstTransaction(b *testing.B) {
	const rounds, batch = 15, 32
	p := newPlane(b, Config{})
	p.agent("agent", rounds*batch*2)
	p.backlog(rounds*batch*2, 10, 1)
	for range b.N {
		took := map[bool][]float64{}
		for i := range 2 * rounds {
			warm := i%2 == 0
			cfg := store.Config{App: p.database.App, Direct: p.database.Direct, Cluster: p.backend.Self().Cluster, Name: "first"}
			if warm {
				cfg.Warm = Statements()
			}
			st, err := store.Open(b.Context(), cfg)
			require.NoError(b, err)
			s := New(Config{Store: st, BatchSize: batch})
			<-time.After(time.Second) // its sessions are opened in the background
			p.exec(`UPDATE forge.agents SET last_seen = coordination.clock()`)
			g := p.lead()
			began := time.Now()
			_, err = s.Recover(b.Context(), g)
			require.NoError(b, err)
			n, err := s.LeaseBatch(b.Context(), g)
			took[warm] = append(took[warm], 1000*time.Since(began).Seconds())
			require.NoError(b, err)
			require.Equal(b, batch, n, "round %d", i)
			st.Close()
		}
		slices.Sort(took[true])
		slices.Sort(took[false])
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(took[false][rounds/2], "ms-cold")
		b.ReportMetric(took[true][rounds/2], "ms-warm")
		b.ReportMetric(took[true][rounds/2]/took[false][rounds/2], "warm/cold")
	}
}
