// Submitting a run: one transaction, unfenced, on any daemon; the rows are the client's.

package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/oklog/ulid/v2"
)

// ErrKeyReused (FY-RUN-002): the idempotency key came with another specification of the same caller before.
var ErrKeyReused = &access.Fault{
	Status: http.StatusConflict, Code: "FY-RUN-002", Message: "the idempotency key belongs to another run specification",
	Hint: "use a new key for a new run",
}

// ErrSpec (FY-RUN-001): the specification is refused; the message names the field.
var ErrSpec = &access.Fault{
	Status: http.StatusUnprocessableEntity, Code: "FY-RUN-001", Message: "the run specification is refused",
	Hint: "correct the named field and submit again",
}

const insertRunSQL = `
INSERT INTO forge.runs (id, name, idempotency_key, request_digest, queue, source, submitted_by)
VALUES ($1, $2, nullif($3, ''), $4, $5, $6, $7)
ON CONFLICT (submitted_by, idempotency_key) DO NOTHING`

// The jobs follow the run only if this transaction inserted it. Their ids rise
// in the order of the specification, which so becomes the order of the queue.
const insertJobsSQL = `
INSERT INTO forge.jobs (id, run_id, name, steps, env, labels, priority, timeout_ms, queue, needs, needed, unmet, state, outputs, attempt_limit, retries)
SELECT j.id, $1, j.name, j.steps, j.env, j.labels, j.priority, j.timeout_ms, $3, j.needs, j.needed, cardinality(j.needs),
       CASE WHEN j.needs = '{}' THEN 'queued' ELSE 'blocked' END, j.outputs, j.attempt_limit, j.retries
  FROM jsonb_to_recordset($2::jsonb)
       AS j(id text, name text, steps jsonb, env jsonb, labels text[], priority smallint, timeout_ms integer, needs text[],
            needed boolean, outputs jsonb, attempt_limit smallint, retries smallint)
 WHERE EXISTS (SELECT FROM forge.runs WHERE id = $1)
 ORDER BY j.id`

// jobRow is a job as insertJobsSQL reads it.
type jobRow struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Steps        []Step            `json:"steps"`
	Env          map[string]string `json:"env"`
	Labels       []string          `json:"labels"`
	Priority     int               `json:"priority"`
	TimeoutMS    int64             `json:"timeout_ms"`
	Needs        []string          `json:"needs"`
	Needed       bool              `json:"needed"`
	Outputs      []Output          `json:"outputs"`
	AttemptLimit int               `json:"attempt_limit"`
	Retries      int               `json:"retries"`
}

// rowsOf makes the rows of a normal specification.
func rowsOf(spec RunSpec, newID func() string) []jobRow {
	needed := map[string]bool{}
	for _, j := range spec.Jobs {
		for _, n := range j.Needs {
			needed[n] = true
		}
	}
	rows := make([]jobRow, len(spec.Jobs))
	for i, j := range spec.Jobs {
		rows[i] = jobRow{
			ID: newID(), Name: j.Name, Steps: j.Steps, Env: j.Env, Labels: orEmpty(j.Labels), Priority: j.Priority,
			TimeoutMS: time.Duration(j.Timeout).Milliseconds(), Needs: orEmpty(j.Needs), Needed: needed[j.Name], Outputs: orEmpty(j.Outputs),
			AttemptLimit: j.AttemptLimit, Retries: j.Retries,
		}
		if rows[i].Env == nil {
			rows[i].Env = map[string]string{}
		}
	}
	return rows
}

// orEmpty turns no slice into one without elements: the columns hold no NULL.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Submit stores a run and its jobs, queued or blocked, in the name of the
// context's caller, and returns the run's id. With a key, the caller who submits
// the same specification again gets the first run's id; created tells which it was.
// Errors: ErrSpec, ErrKeyReused, and the database's.
func Submit(ctx context.Context, db Database, spec RunSpec, key string) (id string, created bool, err error) {
	if err := spec.Validate(); err != nil {
		return "", false, ErrSpec.Because("%v", err)
	}
	if err := checkKey(key); err != nil {
		return "", false, err
	}
	spec = spec.normal()
	ids := ulid.Monotonic(rand.Reader, 0)
	newID := func() string { return ulid.MustNew(ulid.Now(), ids).String() } // the entropy of crypto/rand does not fail
	id = newID()
	digest, err := spec.requestDigest()
	if err != nil {
		return "", false, fmt.Errorf("submit: %w", err)
	}
	jobs, err := json.Marshal(rowsOf(spec, newID))
	if err != nil {
		return "", false, fmt.Errorf("submit: %w", err)
	}
	var source []byte // NULL: none
	if spec.Source != "" {
		d, err := artifact.ParseDigest(spec.Source)
		if err != nil {
			return "", false, ErrSpec.Because("source: %v", err)
		}
		source = d.Bytes()
	}
	caller := submitter(ctx)

	var found string
	var stored []byte
	err = db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(insertRunSQL, id, spec.Name, key, digest, spec.Queue, source, caller).Exec(func(tag pgconn.CommandTag) error {
			created = tag.RowsAffected() == 1
			return nil
		})
		b.Queue(insertJobsSQL, id, jobs, spec.Queue)
		b.Queue(`SELECT id, request_digest FROM forge.runs WHERE id = $1 OR submitted_by = $3 AND idempotency_key = nullif($2, '')`, id, key, caller).
			QueryRow(func(row pgx.Row) error { return row.Scan(&found, &stored) })
	})
	switch {
	case err != nil:
		return "", false, fmt.Errorf("submit: %w", err)
	case string(stored) != string(digest):
		return "", false, ErrKeyReused
	}
	return found, created, nil
}
