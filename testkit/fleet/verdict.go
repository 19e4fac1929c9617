// What a fleet's run must have left behind: every job terminal, each attempt started once by the agents' own logs, leases that never overlap.

package fleet

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// Verdict is the state of the job plane, read from PostgreSQL and from the agents' logs.
type Verdict struct {
	Submitted    int // jobs
	Terminal     int // jobs in a terminal state
	Succeeded    int
	Ran          int // jobs that ended with a result of their own: succeeded or failed
	Starts       int // starts in the agents' logs
	Duplicates   int // (job, attempt) pairs started more than once
	Overlaps     int // pairs of leases of one job whose spans overlap
	MaxAttempt   int
	EpochsFall   int // leases, in the order they were made, whose epoch is below an earlier one
	LeasesMade   int
	HighestEpoch uint64
}

// Problems lists what is wrong; empty when the run is correct and complete.
func (v Verdict) Problems() []string {
	var out []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	check(v.Submitted == v.Terminal, "%d jobs submitted, %d terminal", v.Submitted, v.Terminal)
	check(v.Starts >= v.Ran, "the agents' logs show %d starts for %d jobs that ran", v.Starts, v.Ran)
	check(v.Duplicates == 0, "%d attempts were started more than once", v.Duplicates)
	check(v.Overlaps == 0, "%d pairs of leases of one job overlap", v.Overlaps)
	check(v.EpochsFall == 0, "%d leases were made under an epoch below an earlier one", v.EpochsFall)
	return out
}

// connect opens a superuser connection to the fleet's database.
func (f *Fleet) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, f.DSN("postgres"))
}

// Query runs one row-returning statement as the superuser and scans its first row.
func (f *Fleet) Query(ctx context.Context, sql string, args []any, dest ...any) error {
	c, err := f.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	return c.QueryRow(ctx, sql, args...).Scan(dest...)
}

// Check reads the verdict. It changes nothing.
func (f *Fleet) Check(ctx context.Context) (Verdict, error) {
	var v Verdict
	err := f.Query(ctx, `
		SELECT (SELECT count(*) FROM forge.jobs),
		       (SELECT count(*) FROM forge.jobs WHERE finished_at IS NOT NULL),
		       (SELECT count(*) FROM forge.jobs WHERE state = 'succeeded'),
		       (SELECT count(DISTINCT job_id) FROM forge.leases WHERE outcome IN ('succeeded', 'failed')),
		       (SELECT coalesce(max(attempt), 0) FROM forge.jobs),
		       (SELECT count(*) FROM forge.leases),
		       (SELECT coalesce(max(epoch), 0) FROM forge.leases),
		       (SELECT count(*) FROM forge.leases a JOIN forge.leases b ON a.job_id = b.job_id AND a.attempt < b.attempt
		         WHERE coalesce(a.ended_at, 'infinity') > b.leased_at),
		       (SELECT count(*) FROM (SELECT epoch, max(epoch) OVER (ORDER BY leased_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) hi
		         FROM forge.leases) x WHERE epoch < hi)`, nil,
		&v.Submitted, &v.Terminal, &v.Succeeded, &v.Ran, &v.MaxAttempt, &v.LeasesMade, &v.HighestEpoch, &v.Overlaps, &v.EpochsFall)
	if err != nil {
		return v, fmt.Errorf("read the verdict: %w", err)
	}
	starts := map[attempt]int{}
	for _, a := range f.Agents() {
		entries, err := a.Journal()
		if err != nil {
			return v, err
		}
		for _, e := range entries {
			if e.What == runner.EntryStart {
				starts[attempt{e.Job, e.Attempt}]++
			}
		}
	}
	for _, n := range starts {
		v.Starts += n
		if n > 1 {
			v.Duplicates++
		}
	}
	return v, nil
}

// attempt identifies one try of one job.
type attempt struct {
	job    string
	number int
}

// WaitTerminal returns once every submitted job is terminal.
func (f *Fleet) WaitTerminal(ctx context.Context) error {
	open, err := f.watchCount(ctx, `SELECT count(*) FROM forge.jobs WHERE finished_at IS NULL`, func(n int) bool { return n == 0 })
	switch {
	case err != nil && open < 0:
		return fmt.Errorf("how many jobs are open could not be read: %w", err)
	case err != nil:
		return fmt.Errorf("%d jobs are still open: %w", open, err)
	}
	return nil
}
