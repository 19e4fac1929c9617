// What the database knows of coordination, for the reconciler that compares it with the committed view (§243, §244).

package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/reconcile"
	"github.com/forgeyard/forgeyard/fsm"
)

// Class 0x46590001 is that of the fences' locks; see coordination.fence.
const locksSQL = `
SELECT l.objid::int, l.pid, extract(epoch FROM coordination.clock() - coalesce(a.xact_start, coordination.clock()))::float8
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.classid = 1180237825 AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`

const staleSQL = `
SELECT count(*) FROM forge.dispatch d, coordination.fence f
 WHERE d.state = 'open' AND f.role = 1 AND (d.generation, d.epoch) < (f.generation, f.epoch)`

// CoordinationFacts reads the stored epochs, the fence locks that are held now
// and the undelivered orders below the scheduler's fence.
func (s *Store) CoordinationFacts(ctx context.Context) (reconcile.Facts, error) {
	stored, err := s.HighestEpochs(ctx)
	if err != nil {
		return reconcile.Facts{}, err
	}
	facts := reconcile.Facts{Epochs: make(map[fsm.Role]health.StoredEpochs, len(stored))}
	for role, at := range stored {
		facts.Epochs[role] = health.StoredEpochs{Fence: health.Stamp(at.Fence), Rows: health.Stamp(at.Rows)}
	}
	err = s.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(locksSQL).Query(func(rows pgx.Rows) error {
			var held reconcile.HeldLock
			var seconds float64
			_, err := pgx.ForEachRow(rows, []any{&held.Role, &held.PID, &seconds}, func() error {
				held.Held = time.Duration(seconds * float64(time.Second))
				facts.Locks = append(facts.Locks, held)
				return nil
			})
			return err
		})
		b.Queue(staleSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&facts.StaleDispatches) })
	})
	if err != nil {
		return reconcile.Facts{}, fmt.Errorf("read what the database knows of coordination: %w", err)
	}
	return facts, nil
}
