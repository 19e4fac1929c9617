// Cancelling a run or one of its jobs: the client's request, which the scheduler and the agents then carry out.

package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/store"
)

// The request marks the jobs and then, with a new snapshot, the leases that
// were made before it (§116: an agent is told by lease id, so that a later
// attempt is never hit; there is none, for a marked job is not leased any more).
// A lease that no agent has accepted has nothing to end: its time is over.
//
// Both take only the rows that nobody holds, and no transaction waits for one
// row with another in its hands; what was held is taken the next time. So a
// cancel of thousands of jobs deadlocks with nobody.
const (
	cancelJobsSQL = `
WITH due AS (
  SELECT id FROM forge.jobs WHERE run_id = $1 AND ($2 = '' OR name = $2) AND finished_at IS NULL AND cancel_requested_at IS NULL
     FOR NO KEY UPDATE SKIP LOCKED)
UPDATE forge.jobs j SET cancel_requested_at = coordination.clock(), reason = $3 FROM due WHERE j.id = due.id`

	cancelLeasesSQL = `
WITH due AS (
  SELECT l.id FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id AND l.state = 'active'
   WHERE j.run_id = $1 AND ($2 = '' OR j.name = $2) AND j.cancel_requested_at IS NOT NULL AND l.cancel_requested_at IS NULL
     FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE forge.leases l SET cancel_requested_at = coordination.clock(),
       expires_at = CASE WHEN l.accepted_at IS NULL THEN least(l.expires_at, coordination.clock()) ELSE l.expires_at END
  FROM due WHERE l.id = due.id`

	leftSQL = `
SELECT count(*), count(*) FILTER (WHERE j.finished_at IS NULL AND j.cancel_requested_at IS NULL),
       count(*) FILTER (WHERE l.cancel_requested_at IS NULL AND l.id IS NOT NULL)
  FROM forge.jobs j LEFT JOIN forge.leases l ON l.job_id = j.id AND l.state = 'active'
 WHERE j.run_id = $1 AND ($2 = '' OR j.name = $2)`
)

// How often what somebody holds is tried again.
const (
	cancelFirst = 2 * time.Millisecond
	cancelMost  = 100 * time.Millisecond
)

// CancelRun asks for the end of a run, or with a job's name of that job alone, in
// the name of the context's caller. What has finished stays as it is; asking
// again changes nothing. marked is how many jobs it was asked for the first time.
// When it returns nil every unfinished job is marked. Errors:
// access.ErrNotFound, access.ErrBadRequest, and the database's.
func CancelRun(ctx context.Context, db Database, run, job, reason string) (marked int, err error) {
	if _, err := ulid.ParseStrict(run); err != nil {
		return 0, access.ErrNoRun.Because("no run %.64q", run)
	}
	if job != "" && name("job", job) != nil {
		return 0, noJob(run, "run %s has no job %.140q", run, job)
	}
	if len(reason) > MaxReason {
		return 0, access.ErrBadRequest.Because("reason: %d bytes are more than %d", len(reason), MaxReason)
	}
	why := "cancelled by " + access.CallerOf(ctx).String()
	if reason != "" {
		why += ": " + reason
	}
	for wait := cancelFirst; ; wait = min(2*wait, cancelMost) {
		var n int64
		var found, jobs, leases int
		err := db.Batch(ctx, func(b *pgx.Batch) {
			b.Queue(cancelJobsSQL, run, job, store.Text(why, MaxReason)).Exec(affected(&n))
		})
		if err == nil {
			err = db.Batch(ctx, func(b *pgx.Batch) {
				b.Queue(cancelLeasesSQL, run, job)
				b.Queue(leftSQL, run, job).QueryRow(func(row pgx.Row) error { return row.Scan(&found, &jobs, &leases) })
			})
		}
		marked += int(n)
		switch {
		case err != nil:
			return marked, fmt.Errorf("cancel run %s: %w", run, err)
		case found == 0 && job != "":
			return 0, noJob(run, "run %s has no job %q, or there is no such run", run, job)
		case found == 0:
			return 0, access.ErrNoRun.Because("no run %q", run)
		case jobs == 0 && leases == 0:
			return marked, nil
		}
		if err := pause(ctx, wait); err != nil {
			return marked, fmt.Errorf("cancel run %s: %d jobs and %d leases are held by others: %w", run, jobs, leases, err)
		}
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
