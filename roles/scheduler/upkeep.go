// The upkeep: everything that must happen in time although nobody asks for it, in one fenced round trip a tick.

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster"
)

// What the upkeep looks at last: whether the lease loop has anything to do, which
// is whatever a batch leases or queues, and how long until the next failed
// attempt is to be repeated.
const outlookSQL = `
WITH moment AS MATERIALIZED (SELECT coordination.clock() AS now) -- one for all: a time between two would be in neither
SELECT EXISTS (SELECT FROM forge.jobs WHERE state = 'queued') OR EXISTS (SELECT FROM forge.jobs WHERE state = 'blocked' AND unmet = 0)
       OR EXISTS (SELECT FROM forge.jobs WHERE state = 'backoff' AND not_before <= (SELECT now FROM moment)),
       coalesce((SELECT min(not_before) FROM forge.jobs WHERE state = 'backoff' AND not_before > (SELECT now FROM moment))
         - (SELECT now FROM moment), interval '1 h')`

// kept is what one round of upkeep found.
type kept struct {
	lost               time.Duration // given back to every active lease
	expired            expired
	cancelled, skipped int64 // jobs
	void, restamped    int64 // orders
	work               bool  // something may be leasable
	due                time.Duration
}

// maintain advances the lease clock, ends leases whose time is over, settles
// jobs that will not run, and keeps the orders in shape: a daemon opens one
// again when its agent never learned that it may start, and that order still
// has an older epoch. Being fenced it also notices a lost fence on a quiet scheduler.
//
// Everywhere leases are locked first, then jobs, orders and agents. Only the lease
// clock waits, for leases, before anything else is held; all that follows takes
// what nobody holds and leaves the rest for its next round. So upkeep is part
// of no deadlock.
func (s *Scheduler) maintain(ctx context.Context, g cluster.RoleGuard) (k kept, err error) {
	err = s.cfg.Store.Fenced(ctx, g, func(b *pgx.Batch) {
		advance(b, s.outage(), &k.lost)
		s.queueSettled(b, &k.cancelled, &k.skipped)
		s.queueExpiry(b, &k.expired)
		b.Queue(voidSQL(passHeld)).Exec(affected(&k.void))
		b.Queue(restampSQL(passHeld)).Exec(affected(&k.restamped))
		b.Queue(outlookSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&k.work, &k.due) })
	})
	return k, err
}

// keep is the loop's step.
func (s *Scheduler) keep(ctx context.Context, g cluster.RoleGuard) (time.Duration, error) {
	k, err := s.maintain(ctx, g)
	if err != nil {
		return 0, fmt.Errorf("upkeep: %w", err)
	}
	log := s.cfg.Logger.With("epoch", g.Epoch())
	if k.lost > 0 {
		log.Info("every active lease was extended by the time in which no scheduler was active", "by", k.lost)
	}
	if n := k.expired.leases; n > 0 {
		s.meter.expired(n)
		log.Info("ended leases whose time was over", "leases", n)
	}
	for _, id := range k.expired.quarantined {
		log.Warn("an agent that accepts no leases was quarantined", "agent", id)
	}
	if k.cancelled+k.skipped > 0 {
		log.Debug("jobs that nobody had leased ended", "cancelled", k.cancelled, "skipped", k.skipped)
	}
	if k.restamped > 0 {
		s.cfg.Dispatched()
	}
	if k.work {
		s.leases.ring()
	}
	full := int64(s.cfg.BatchSize)
	if k.expired.leases > 0 || k.cancelled == full || k.skipped > 0 {
		return 0, nil // there are more, or jobs that needed these ones to be skipped
	}
	return max(time.Millisecond, min(s.cfg.Tick, k.due)), nil
}
