// The whole story of a failed run, and where it is left.

package seeds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// What is in a failed run's directory. Schedule and log are there from the start.
const (
	logFile        = "log.txt"
	scheduleFile   = "schedule.txt"
	traceFile      = "trace.jsonl"
	tablesFile     = "tables.jsonl"     // rows, with their table's name
	operationsFile = "operations.jsonl" // what callers asked for and were answered: on grants, exclusive operations, runs
	replicasFile   = "replicas.jsonl"   // the hash after each entry, and who told it
	filesDir       = "fleet"            // the directories of all daemons and agents, with the agents' journals
)

// tables are those of which the rows are kept: what was recorded, and the job plane that it is about.
var tables = [...]string{
	"public.hist", "public.agent_log", "public.client_op", "public.nemesis",
	"coordination.fence", "coordination.audit", "coordination.join_tokens",
	"forge.runs", "forge.jobs", "forge.leases", "forge.dispatch", "forge.agents", "forge.tick",
}

// failed reports whether the run failed or ended in the middle: a test that panics
// is cleaned up before it counts as failed.
func (w *world) failed() bool { return w.t.Failed() || !w.judged }

// keepFiles saves the directories of daemons and agents of a failed run before the fleet removes them.
func (w *world) keepFiles(dir string) {
	if !w.failed() {
		return
	}
	if err := os.CopyFS(filepath.Join(w.dir, filesDir), os.DirFS(dir)); err != nil {
		w.t.Errorf("the files of the failed run: %v", err)
	}
}

// keep leaves the whole story of a failed run behind, and nothing of one that passed.
func (w *world) keep(db *pgtest.Database) {
	if !w.failed() {
		require.NoError(w.t, os.RemoveAll(w.dir))
		return
	}
	story := w.schedule.String() + "\nwhat happened:\n" + w.tally.String()
	w.t.Logf("%s\nlogs, traces, journals, rows and operations of everybody are in %s\nreplay: FORGEYARD_SEED=%d FORGEYARD_FAULTS=%s FORGEYARD_REPLAY=50 go test -tags=hashicorpmetrics,chaos -run TestReplay -timeout 2h ./testkit/seeds",
		story, w.dir, w.schedule.Seed, w.schedule.Length)
	errs := []error{
		os.WriteFile(filepath.Join(w.dir, scheduleFile), []byte(story), 0o600),
		w.keepTables(db),
		w.keepLines(operationsFile, w.operations()),
		w.keepLines(replicasFile, w.replicas.story()),
	}
	if w.fleet != nil {
		errs = append(errs, w.keepLines(traceFile, w.traces()))
	}
	if err := errors.Join(errs...); err != nil {
		w.t.Errorf("the story of the failed run: %v", err)
	}
}

// keepLines writes a file of one JSON value a line.
func (w *world) keepLines(file string, lines []any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return os.WriteFile(filepath.Join(w.dir, file), []byte(b.String()), 0o600)
}

func (w *world) keepTables(db *pgtest.Database) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, db.Super)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	var all []any
	for _, table := range tables {
		rows, err := c.Query(ctx, `SELECT jsonb_build_object('table', $1::text) || to_jsonb(x) FROM `+table+` x`, table)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
		if err != nil {
			return fmt.Errorf("%s: %w", table, err)
		}
		for _, line := range lines {
			all = append(all, line)
		}
	}
	return w.keepLines(tablesFile, all)
}

// traces are the events of all incarnations, each with its process.
func (w *world) traces() (lines []any) {
	for node, incarnations := range w.fleet.Traces() {
		for i, events := range incarnations {
			for _, e := range events {
				lines = append(lines, struct {
					Process string `json:"process"`
					trace.Event
				}{fmt.Sprintf("%s#%d", node, i+1), e})
			}
		}
	}
	return lines
}

// operation is what somebody asked for, on the time scale of the traces.
type operation struct {
	On     string `json:"on"`
	Call   int64  `json:"call_ns,omitzero"`
	Answer int64  `json:"answer_ns,omitzero"`
	What   string `json:"what"`
}

// operations is what was asked of the committed state, and what clients were told.
func (w *world) operations() (lines []any) {
	for _, g := range w.grants.Grants() {
		lines = append(lines, operation{"grants", g.Call, g.Return, g.String()})
	}
	if w.locks != nil {
		for _, x := range w.locks.taken() {
			lines = append(lines, operation{"exclusive operations", x.call, x.answer, fmt.Sprintf("taken under epoch %d", x.epoch)})
		}
	}
	if w.traffic != nil {
		for key, outcome := range w.traffic.told() {
			lines = append(lines, operation{On: "runs", What: key.String() + ": " + string(outcome)})
		}
	}
	return lines
}
