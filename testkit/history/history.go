// Package history records what a fleet did to PostgreSQL and checks it against the invariants.
//
// invariants.sql holds the tables and one view per invariant; record.sql fills
// them by triggers in the very transactions that it watches.
package history

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/roles/runner"
)

//go:embed invariants.sql
var invariantsSQL string

//go:embed record.sql
var recordSQL string

// Install creates tables, views and triggers in a migrated database. conn is a superuser's.
func Install(ctx context.Context, conn *pgx.Conn) error {
	for _, sql := range []string{invariantsSQL, recordSQL} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("install the history: %w", err)
		}
	}
	return nil
}

// AgentEvent is one line of an agent's own log.
type AgentEvent struct {
	Agent, Lease, Job, What string // What is a runner.EntryKind; the invariants ask about "dispatch" and "start"
	N, Generation, Epoch    int64
	Attempt                 int
}

// EventsOf are the agents' journals, by agent, each oldest first, as the checker takes them.
func EventsOf(journals map[string][]runner.Entry) (events []AgentEvent) {
	for agent, entries := range journals {
		for n, e := range entries {
			events = append(events, AgentEvent{
				Agent: agent, Lease: e.Lease, Job: e.Job, What: string(e.What), N: int64(n + 1),
				Generation: int64(e.Generation), Epoch: int64(e.Epoch), Attempt: e.Attempt,
			})
		}
	}
	return events
}

// AddAgentEvents hands the agents' own logs to the checker.
func AddAgentEvents(ctx context.Context, conn *pgx.Conn, events []AgentEvent) error {
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"agent_log"},
		[]string{"agent", "n", "generation", "epoch", "lease", "job", "attempt", "what"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) {
			e := events[i]
			return []any{e.Agent, e.N, e.Generation, e.Epoch, e.Lease, e.Job, e.Attempt, e.What}, nil
		}))
	return err
}

// Report is what was recorded, and which invariants it breaks.
type Report struct {
	Counts     map[string]int    // rows of hist by kind, and by kind and state: "write", "write active"
	Violations map[string]string // view → its first row
}

// Err is nil when nothing is broken and at least the given traffic was recorded:
// a check of an empty history proves nothing.
func (r Report) Err(atLeast map[string]int) error {
	var problems []string
	for view, row := range r.Violations {
		problems = append(problems, view+": "+row)
	}
	for kind, want := range atLeast {
		if r.Counts[kind] < want {
			problems = append(problems, fmt.Sprintf("too little traffic: %d %s recorded, at least %d are needed", r.Counts[kind], kind, want))
		}
	}
	if problems == nil {
		return nil
	}
	sort.Strings(problems)
	return fmt.Errorf("history: %s", strings.Join(problems, "; "))
}

// Check evaluates every view of invariants.sql.
func Check(ctx context.Context, conn *pgx.Conn) (Report, error) {
	r := Report{Counts: map[string]int{}, Violations: map[string]string{}}
	rows, err := conn.Query(ctx, `SELECT kind, coalesce(' ' || state, ''), count(*) FROM hist GROUP BY 1, 2`)
	if err != nil {
		return r, err
	}
	var kind, state string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&kind, &state, &n}, func() error {
		r.Counts[kind] += n
		if state != "" {
			r.Counts[kind+state] = n
		}
		return nil
	}); err != nil {
		return r, err
	}
	rows, err = conn.Query(ctx, `SELECT viewname FROM pg_views WHERE schemaname = 'public' AND viewname ~ '^i[0-9][0-9]_' ORDER BY 1`)
	if err != nil {
		return r, err
	}
	views, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return r, err
	}
	if want := strings.Count(invariantsSQL, "create view "); len(views) != want {
		return r, fmt.Errorf("%d of %d invariants are installed", len(views), want)
	}
	for _, v := range views {
		var first string
		err := conn.QueryRow(ctx, `SELECT to_jsonb(x)::text FROM `+pgx.Identifier{v}.Sanitize()+` x LIMIT 1`).Scan(&first)
		switch {
		case err == nil:
			r.Violations[v] = first
		case err != pgx.ErrNoRows:
			return r, fmt.Errorf("%s: %w", v, err)
		}
	}
	return r, nil
}

// QuorumLoss is the kind of fault during which no role may be granted.
const QuorumLoss = "quorum_loss"

// Outcome is what a client knows of an operation that it asked for.
type Outcome string

// The outcomes, as client_op has them.
const (
	Acknowledged Outcome = "ok"
	Rejected     Outcome = "rejected" // certainly not done
	Unknown      Outcome = "unknown"
)

// Answered is the outcome of a request that was answered with an HTTP status, 0 for
// no answer: a client that is refused for good knows that nothing was done, one
// that is told to come back later does not.
func Answered(status int) Outcome {
	switch {
	case status >= 200 && status < 300:
		return Acknowledged
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		return Rejected
	}
	return Unknown
}

// AddClientOperation notes what a client was told about the submission under a key.
func AddClientOperation(ctx context.Context, conn *pgx.Conn, key [16]byte, outcome Outcome) error {
	_, err := conn.Exec(ctx, `INSERT INTO client_op VALUES ($1, $2)`, key, outcome)
	return err
}

// AddFault notes a fault that an invariant asks about.
func AddFault(ctx context.Context, conn *pgx.Conn, kind string, from, to time.Time) error {
	_, err := conn.Exec(ctx, `INSERT INTO nemesis VALUES ($1, '', $2, $3)`, kind, from, to)
	return err
}

// AddRemoved notes that a node is no member any more: from now on it may leave no row.
func AddRemoved(ctx context.Context, conn *pgx.Conn, node string) error {
	_, err := conn.Exec(ctx, `INSERT INTO hist (kind, node, state) VALUES ('member', $1, 'removed')`, node)
	return err
}
