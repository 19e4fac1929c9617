// Faults that fleets like this met in the field, by kind; testkit/FIELD_FAULTS.md lists them all.

package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Somebody holds an old snapshot, so that nothing of what has ended can be
// vacuumed. Leasing stays as fast as it was: its statements read no ended rows.
func TestFieldFaultPgLocksTx(t *testing.T) {
	t.Run("FB-070", func(t *testing.T) {
		p := newPlane(t, Config{})
		g := p.lead()
		p.agent("a", 64)
		old, err := pgx.Connect(t.Context(), p.database.Super)
		require.NoError(t, err)
		defer old.Close(t.Context())
		_, err = old.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM forge.jobs`)
		require.NoError(t, err)
		const rounds, each = 30, 40
		took := make([]time.Duration, 0, rounds)
		for range rounds {
			p.submit(each, nil)
			for leased := 0; leased < each; {
				begin := time.Now()
				leased += p.batch(g)
				took = append(took, time.Since(begin))
				require.Less(t, len(took), 4*rounds, "batches that lease nothing")
			}
			p.completeAll()
		}
		var seen int
		require.NoError(t, old.QueryRow(t.Context(), `SELECT count(*) FROM forge.jobs`).Scan(&seen))
		require.Zero(t, seen, "the snapshot is as old as the first round")
		slices.Sort(took)
		require.Less(t, took[len(took)*95/100], 500*time.Millisecond, "ten times what it should take") // 50 ms on a machine of its own
	})
}
