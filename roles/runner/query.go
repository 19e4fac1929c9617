// Reading runs: newest first, and one with everything.

package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
)

// Bounds of List, in runs.
const (
	DefaultList = 20
	MaxList     = 200
)

const countsSQL = `
count(*) FILTER (WHERE j.state = 'queued'), count(*) FILTER (WHERE j.state = 'leased'),
count(*) FILTER (WHERE j.state = 'succeeded'), count(*) FILTER (WHERE j.state = 'failed'),
count(*) FILTER (WHERE j.state = 'cancelled')`

// The newest runs are found first, and only their jobs are counted.
const listSQL = `
WITH newest AS (SELECT id, name, submitted_at FROM forge.runs ORDER BY id DESC LIMIT $1)
SELECT r.id, r.name, r.submitted_at, ` + countsSQL + `
  FROM newest r JOIN forge.jobs j ON j.run_id = r.id
 GROUP BY r.id, r.name, r.submitted_at ORDER BY r.id DESC`

const runSQL = `
SELECT r.id, r.name, r.submitted_at, ` + countsSQL + `
  FROM forge.runs r JOIN forge.jobs j ON j.run_id = r.id WHERE r.id = $1 GROUP BY r.id`

const jobsSQL = `
SELECT id, name, steps, labels, priority, timeout_ms, state, reason, attempt, attempt_limit, finished_at
  FROM forge.jobs WHERE run_id = $1 ORDER BY seq`

const leasesSQL = `
SELECT l.job_id, l.id::text, l.attempt, l.agent_id, l.epoch, l.generation, l.state, l.leased_at, l.accepted_at, l.expires_at,
       l.ended_at, coalesce(l.outcome, ''), l.exit_code, l.duration_ms, l.reason, coalesce(l.output_tail, '')
  FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1 ORDER BY l.attempt`

// List returns the newest runs without their jobs, at most limit of them.
func List(ctx context.Context, db Database, limit int) ([]Run, error) {
	runs := []Run{}
	err := db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(listSQL, min(max(1, limit), MaxList)).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r, err := scanRun(rows)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			return rows.Err()
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// Get returns one run with its jobs and their leases; access.ErrNotFound when there is none.
func Get(ctx context.Context, db Database, id string) (Run, error) {
	// PostgreSQL would refuse a NUL or a byte that is not UTF-8, and the client would read of an internal error.
	if _, err := ulid.ParseStrict(id); err != nil {
		return Run{}, access.ErrNotFound.Because("no run %.64q", id)
	}
	var run Run
	var jobs []Job
	leases := map[string][]Lease{}
	err := db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(runSQL, id).QueryRow(func(row pgx.Row) (err error) {
			run, err = scanRun(row)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		b.Queue(jobsSQL, id).Query(func(rows pgx.Rows) (err error) {
			jobs, err = pgx.CollectRows(rows, scanJob)
			return err
		})
		b.Queue(leasesSQL, id).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				job, l, err := scanLease(rows)
				if err != nil {
					return err
				}
				leases[job] = append(leases[job], l)
			}
			return rows.Err()
		})
	})
	switch {
	case err != nil:
		return Run{}, fmt.Errorf("read run %s: %w", id, err)
	case run.ID == "":
		return Run{}, access.ErrNotFound.Because("no run %q", id)
	}
	for i := range jobs {
		jobs[i].Leases = leases[jobs[i].ID]
	}
	run.Jobs = jobs
	return run, nil
}

func scanRun(row pgx.Row) (Run, error) {
	var r Run
	c := &r.Counts
	err := row.Scan(&r.ID, &r.Name, &r.SubmittedAt, &c.Queued, &c.Leased, &c.Succeeded, &c.Failed, &c.Cancelled)
	r.State = c.State()
	return r, err
}

func scanJob(row pgx.CollectableRow) (Job, error) {
	var j Job
	var timeout int64
	err := row.Scan(&j.ID, &j.Name, &j.Steps, &j.Labels, &j.Priority, &timeout, &j.State, &j.Reason, &j.Attempt, &j.AttemptLimit, &j.FinishedAt)
	j.Timeout = milliseconds(timeout)
	return j, err
}

func scanLease(row pgx.Row) (job string, l Lease, err error) {
	var took *int64
	var tail []byte
	err = row.Scan(&job, &l.ID, &l.Attempt, &l.Agent, &l.Epoch, &l.Generation, &l.State, &l.LeasedAt, &l.AcceptedAt, &l.ExpiresAt,
		&l.EndedAt, &l.Outcome, &l.ExitCode, &took, &l.Reason, &tail)
	if took != nil {
		d := milliseconds(*took)
		l.Duration = &d
	}
	l.OutputTail = storable(tail, 4*MaxTail) // a replaced byte takes three
	return job, l, err
}

func milliseconds(n int64) Duration { return Duration(time.Duration(n) * time.Millisecond) }
