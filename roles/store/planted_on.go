//go:build mutants

// Faults that are planted into the sending of a batch, so that tests can show that they would be noticed.

package store

import (
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgeyard/forgeyard/migrations/mutant"
)

// plantedFence takes the fence's statement from the front of a fenced batch and puts the same check
// into each plain INSERT, UPDATE or DELETE: under the same lock, but in the snapshot of a statement
// that began before it waited for the lock.
func plantedFence(b *pgx.Batch, a authority) {
	if !mutant.Planted(mutant.FenceInsideStatement) {
		return
	}
	b.QueuedQueries[0].SQL = "SELECT set_config('forgeyard.fence', concat_ws(':', $1::smallint, $2::bigint, $3::bigint), true)"
	for _, q := range b.QueuedQueries[1:] {
		n := len(q.Arguments)
		arg := func(i int) string { return "$" + strconv.Itoa(n+i) }
		q.SQL = "WITH mutation AS (" + q.SQL + " RETURNING 1) SELECT 1 / count(*) FROM coordination.fence f" +
			" WHERE f.role = " + arg(1) + " AND f.generation = " + arg(2) + " AND f.epoch = " + arg(3) +
			" AND pg_advisory_xact_lock_shared(1180237825, f.role)::text IS NOT NULL"
		q.Arguments = append(q.Arguments, a.role, a.generation, a.epoch)
	}
}

// plantedAnswer acknowledges a batch when its last statement was answered, before the commit was.
func plantedAnswer(b *pgx.Batch, answer pgx.BatchResults) pgx.BatchResults {
	if !mutant.Planted(mutant.AckBeforeCommit) {
		return answer
	}
	return early{answer, b.QueuedQueries}
}

type early struct {
	pgx.BatchResults
	statements []*pgx.QueuedQuery
}

func (e early) Close() error {
	for _, q := range e.statements {
		if q.Fn == nil {
			q.Exec(func(pgconn.CommandTag) error { return nil })
		}
		if err := q.Fn(e.BatchResults); err != nil {
			_ = e.BatchResults.Close()
			return err
		}
	}
	_ = e.BatchResults.Close() // what it says of the commit is not looked at: that is the fault
	return nil
}
