// The database's clock under a test's control.

package pgtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ShiftClock makes coordination.clock() of this database run ahead of the real
// clock by d (negative: behind), for every session at once. It replaces the
// function, so production code has no knob that could shift its clock.
func (d *Database) ShiftClock(ctx context.Context, by time.Duration) error {
	conn, err := pgx.Connect(ctx, d.Owner)
	if err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, fmt.Sprintf(`CREATE OR REPLACE FUNCTION coordination.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
		AS 'SELECT pg_catalog.clock_timestamp() + %d * interval ''1 microsecond'''`, by.Microseconds()))
	if err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	return nil
}
