// Reading runs: newest first in pages, and one with everything.

package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/store"
)

// Bounds of List, in runs.
const (
	DefaultList = 20
	MaxList     = 200
)

// MaxTails bounds the output tails of one run that Get returns, in bytes: every
// attempt of thousands of jobs may have one, and a daemon answers many.
const MaxTails = 2 << 20

const countsSQL = `
count(*) FILTER (WHERE j.state = 'blocked'), count(*) FILTER (WHERE j.state = 'queued'), count(*) FILTER (WHERE j.state = 'leased'),
count(*) FILTER (WHERE j.state = 'backoff'), count(*) FILTER (WHERE j.state = 'succeeded'), count(*) FILTER (WHERE j.state = 'failed'),
count(*) FILTER (WHERE j.state = 'cancelled'), count(*) FILTER (WHERE j.state = 'skipped')`

const runColumnsSQL = `r.id, r.name, r.queue, coalesce('sha256:' || encode(r.source, 'hex'), ''), r.submitted_by, r.submitted_at`

// The newest runs are found first, and only their jobs are counted.
const listSQL = `
WITH newest AS MATERIALIZED (
  SELECT * FROM forge.runs WHERE ($2 = '' OR id < $2) AND ($3 = '' OR queue = $3) ORDER BY id DESC LIMIT $1)
SELECT ` + runColumnsSQL + `, ` + countsSQL + `
  FROM newest r JOIN forge.jobs j ON j.run_id = r.id
 GROUP BY r.id, r.name, r.queue, r.source, r.submitted_by, r.submitted_at ORDER BY r.id DESC`

const runSQL = `
SELECT ` + runColumnsSQL + `, ` + countsSQL + ` FROM forge.runs r JOIN forge.jobs j ON j.run_id = r.id WHERE r.id = $1 GROUP BY r.id`

const jobsSQL = `
SELECT id, name, steps, labels, needs, outputs, priority, timeout_ms, state, reason, attempt, attempt_limit, retries, failures,
       CASE WHEN state = 'backoff' THEN not_before END, cancel_requested_at, finished_at
  FROM forge.jobs WHERE run_id = $1 ORDER BY seq`

// Tails are given up to $2 bytes, those of attempts that did not succeed first, then the newest.
const leasesSQL = `
SELECT l.job_id, l.id::text, l.attempt, l.agent_id, l.epoch, l.generation, l.state, l.leased_at, l.accepted_at, l.heartbeat_at, l.expires_at,
       l.ended_at, coalesce(l.outcome, ''), l.exit_code, l.duration_ms, l.reason, l.note, l.log_bytes, l.log_final, l.cancel_requested_at,
       CASE WHEN sum(length(l.output_tail)) OVER (ORDER BY l.outcome IS NOT DISTINCT FROM 'succeeded', l.id DESC) <= $2::bigint
            THEN l.output_tail ELSE '' END
  FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1 ORDER BY l.attempt`

const artifactsSQL = `
SELECT x.lease_id::text, j.name, x.name, x.path, 'sha256:' || encode(x.digest, 'hex'), x.size, l.attempt, x.at
  FROM forge.artifacts x JOIN forge.jobs j ON j.id = x.job_id JOIN forge.leases l ON l.id = x.lease_id
 WHERE x.run_id = $1 AND ($2 OR l.outcome = 'succeeded') ORDER BY j.seq, x.name, l.attempt`

// Filter says which runs List returns. The zero Filter returns the newest ones.
type Filter struct {
	Limit int      // 1 to MaxList; 0 means DefaultList
	After string   // the run after which the page begins, "" for the newest
	State RunState // "" for any
	Queue string   // "" for any
}

// List returns a page of runs without their jobs, newest first, and the After
// of the next page, "" when there is none. With a state it looks at a bounded
// number of runs and may return a short page with a next one.
func List(ctx context.Context, db Database, f Filter) (runs []Run, next string, err error) {
	if f.Limit <= 0 {
		f.Limit = DefaultList
	}
	f.Limit = min(f.Limit, MaxList)
	look := f.Limit + 1 // one more tells whether there is a next page
	if f.State != "" {
		look = MaxList + 1
	}
	var seen []Run
	err = db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(listSQL, look, f.After, f.Queue).Query(func(rows pgx.Rows) (err error) {
			seen, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Run, error) { return scanRun(row) })
			return err
		})
	})
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	runs = []Run{}
	for i, r := range seen {
		if i == look-1 || len(runs) == f.Limit {
			return runs, seen[i-1].ID, nil
		}
		if f.State == "" || r.State == f.State {
			runs = append(runs, r)
		}
	}
	return runs, "", nil
}

// Get returns one run with its jobs and their leases, and of their output tails
// at most MaxTails; access.ErrNotFound when there is none.
func Get(ctx context.Context, db Database, id string) (Run, error) {
	// PostgreSQL would refuse a NUL or a byte that is not UTF-8, and the client would read of an internal error.
	if _, err := ulid.ParseStrict(id); err != nil {
		return Run{}, access.ErrNoRun.Because("no run %.64q", id)
	}
	var run Run
	var jobs []Job
	leases := map[string][]Lease{}
	artifacts := map[string][]Artifact{}
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
		b.Queue(leasesSQL, id, int64(MaxTails)).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				job, l, err := scanLease(rows)
				if err != nil {
					return err
				}
				leases[job] = append(leases[job], l)
			}
			return rows.Err()
		})
		b.Queue(artifactsSQL, id, true).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				lease, a, err := scanArtifact(rows)
				if err != nil {
					return err
				}
				artifacts[lease] = append(artifacts[lease], a)
			}
			return rows.Err()
		})
	})
	switch {
	case err != nil:
		return Run{}, fmt.Errorf("read run %s: %w", id, err)
	case run.ID == "":
		return Run{}, access.ErrNoRun.Because("no run %q", id)
	}
	for i := range jobs {
		jobs[i].Leases = leases[jobs[i].ID]
		for k := range jobs[i].Leases {
			jobs[i].Leases[k].Artifacts = artifacts[jobs[i].Leases[k].ID]
		}
	}
	run.Jobs = jobs
	return run, nil
}

func scanRun(row pgx.Row) (Run, error) {
	var r Run
	c := &r.Counts
	err := row.Scan(&r.ID, &r.Name, &r.Queue, &r.Source, &r.SubmittedBy, &r.SubmittedAt,
		&c.Blocked, &c.Queued, &c.Leased, &c.Backoff, &c.Succeeded, &c.Failed, &c.Cancelled, &c.Skipped)
	r.State = c.State()
	return r, err
}

func scanJob(row pgx.CollectableRow) (Job, error) {
	var j Job
	var timeout int64
	err := row.Scan(&j.ID, &j.Name, &j.Steps, &j.Labels, &j.Needs, &j.Outputs, &j.Priority, &timeout, &j.State, &j.Reason, &j.Attempt,
		&j.AttemptLimit, &j.Retries, &j.Failures, &j.NotBefore, &j.CancelledAt, &j.FinishedAt)
	j.Timeout = milliseconds(timeout)
	return j, err
}

func scanLease(row pgx.Row) (job string, l Lease, err error) {
	var took *int64
	var tail []byte
	err = row.Scan(&job, &l.ID, &l.Attempt, &l.Agent, &l.Epoch, &l.Generation, &l.State, &l.LeasedAt, &l.AcceptedAt, &l.Heartbeat, &l.ExpiresAt,
		&l.EndedAt, &l.Outcome, &l.ExitCode, &took, &l.Reason, &l.Note, &l.LogBytes, &l.LogFinal, &l.Cancelled, &tail)
	if took != nil {
		d := milliseconds(*took)
		l.Duration = &d
	}
	l.OutputTail = store.Text(string(tail), 4*MaxTail) // a replaced byte takes three
	return job, l, err
}

func scanArtifact(row pgx.Row) (lease string, a Artifact, err error) {
	err = row.Scan(&lease, &a.Job, &a.Name, &a.Path, &a.Digest, &a.Size, &a.Attempt, &a.At)
	return lease, a, err
}

func milliseconds(n int64) Duration { return Duration(time.Duration(n) * time.Millisecond) }

// noJob is the answer to a request for a job or an attempt that a run does not have.
func noJob(run, format string, args ...any) error {
	return access.ErrNotFound.Hinted("see its jobs and attempts: forgeyard run show %s", run).Because(format, args...)
}
