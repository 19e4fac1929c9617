package scheduler

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// bare sends what the scheduler sends, in one transaction too, with the fence's note but without its lock, row and comparison.
type bare struct{ *plane }

func (bare) RaiseFence(context.Context, cluster.RoleGuard) error { return nil }

func (b bare) Fenced(ctx context.Context, _ cluster.RoleGuard, fill func(*pgx.Batch)) error {
	return b.store.Batch(ctx, func(q *pgx.Batch) {
		q.Queue(`SELECT set_config('forgeyard.fence', '1:1:1', true)`)
		fill(q)
	})
}

// BenchmarkTryLease measures one lease transaction of 1, 16 and 100 jobs with
// and without the fence, each on a database of its own (§288); ns/op is per transaction.
func BenchmarkTryLease(b *testing.B) {
	for _, size := range []int{1, 16, 100} {
		for _, mode := range []string{"fenced", "bare"} {
			b.Run(mode+"/"+map[int]string{1: "1", 16: "16", 100: "100"}[size], func(b *testing.B) {
				p := newPlane(b, Config{})
				p.agent("a", 1024)
				g := p.lead()
				s := p.Scheduler
				if mode == "bare" {
					s = New(Config{Store: bare{p}})
				}
				var picks [][]pick
				for range b.N {
					run := p.submit(size, nil)
					var batch []pick
					for _, id := range all[string](p, `SELECT id FROM forge.jobs WHERE run_id = $1`, run) {
						batch = append(batch, pick{job: id, agent: "a"})
					}
					picks = append(picks, batch)
				}
				b.ResetTimer()
				for _, batch := range picks {
					n, err := s.write(b.Context(), g, batch)
					require.NoError(b, err)
					require.Equal(b, size, n)
				}
			})
		}
	}
}
