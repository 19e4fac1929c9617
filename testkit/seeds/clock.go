// The database's clock, tied to virtual time: leases then expire as they do in a fleet.

package seeds

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// clockStep is how far the database's clock lags behind at most; never ahead, so
// that no lease ends in the database before it ends for its agent.
const clockStep = 500 * time.Millisecond

// clockSQL makes coordination.clock() read a sequence, which every session and
// every snapshot sees at once.
const clockSQL = `
CREATE SEQUENCE public.harness_clock MINVALUE 0;
GRANT SELECT ON public.harness_clock TO forgeyard_app, forgeyard_owner;
CREATE OR REPLACE FUNCTION coordination.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS 'SELECT pg_catalog.timestamptz ''2026-01-01 00:00:00+00'' + last_value * interval ''1 microsecond'' FROM public.harness_clock'`

// clock keeps the database's clock.
type clock struct {
	begun time.Time
	conn  *pgx.Conn
	stop  context.CancelFunc
	done  chan error
}

// startClock takes over the clock of a database. Call it inside the bubble.
func startClock(ctx context.Context, dsn string) (*clock, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, clockSQL); err != nil {
		return nil, fmt.Errorf("take over the clock: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &clock{begun: time.Now(), conn: conn, stop: cancel, done: make(chan error, 1)}
	go func() { c.done <- c.run(ctx) }() // ends with close
	return c, nil
}

func (c *clock) run(ctx context.Context) error {
	step := time.NewTicker(clockStep)
	defer step.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-step.C:
		}
		// Not under ctx: a statement that is cancelled half-way would break the connection.
		if _, err := c.conn.Exec(context.WithoutCancel(ctx), `SELECT setval('public.harness_clock', $1)`, time.Since(c.begun).Microseconds()); err != nil {
			return fmt.Errorf("move the clock: %w", err)
		}
	}
}

// close stops the clock where it is.
func (c *clock) close() error {
	c.stop()
	err := <-c.done
	if closed := c.conn.Close(context.Background()); err == nil {
		err = closed
	}
	return err
}
