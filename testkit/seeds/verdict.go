// What must be true of every seed: progress once the faults are over, and a history that no fault may have broken.

package seeds

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/linear"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

// Bounds of the second phase, in virtual time from the end of the last fault. A
// role that was given up again and again waits for up to a minute.
const (
	roleBound = 90 * time.Second
	workBound = 3 * time.Minute
	fillFor   = 20 * time.Second // the jobs that show that no slot was left behind
)

// Least traffic of a run, for each ten seconds of faults: less would prove nothing.
const (
	leastRuns     = 3
	leastLeases   = 4
	leastEntries  = 5 // compared between replicas
	leastTakeover = 1 // operations of the administrator
)

// What recover itself adds to the traffic.
const (
	ownRuns   = daemons + 1    // one through each, and the one that fills all slots
	ownLeases = agents * slots // of that one
)

// recover is the second phase: every fault is over, and the fleet must go on by itself.
func (w *world) recover() {
	healed := time.Now()
	w.note("all faults are over")
	w.await("the role is active", roleBound, func() bool { return w.owners() == 1 })
	roles := time.Since(healed)
	w.traffic.stop()
	answered := make(chan struct{})
	go func() { // ends with answered; a client asks until w.ctx ends
		for i := range daemons {
			w.traffic.begin(w.ctx, w.ctx, i) // one more through each
		}
		w.traffic.halt()
		close(answered)
	}()
	w.await("every client has its answer", workBound, func() bool {
		select {
		case <-answered:
			return true
		default:
			return false
		}
	})
	w.await("all jobs have ended", workBound, func() bool { return w.open() == 0 })
	w.side.Go(func() { w.traffic.fill(w.ctx, agents*slots, fillFor) })
	w.await("every slot of every agent runs a job", fillFor, func() bool { return w.work.filling() == agents*slots })
	w.side.Wait()
	w.await("those jobs have ended", workBound, func() bool { return w.open() == 0 })
	w.locks.halt()
	w.await("all replicas are at the same entry", roleBound, func() bool {
		at := map[uint64]bool{}
		for _, n := range w.fleet.Nodes {
			at[w.replicas.reached(w.process(n))] = true
		}
		return len(at) == 1 && !at[0]
	})
	w.t.Logf("seed %d: after the last fault the role was active in %s, all work done in %s; %d daemons ended by themselves",
		w.schedule.Seed, roles.Round(time.Millisecond), time.Since(healed).Round(time.Millisecond), w.ended)
}

// await lets virtual time pass until ok, and restarts daemons that end by themselves.
func (w *world) await(what string, bound time.Duration, ok func() bool) {
	w.t.Helper()
	begun := time.Now()
	for ; !ok(); <-time.After(look) {
		w.nemesis.attend()
		if time.Since(begun) > bound {
			require.FailNow(w.t, "it did not happen within "+bound.String()+": "+what)
		}
	}
	w.note("after %s: %s", time.Since(begun), what)
}

// owners is how many daemons have the scheduler's role active.
func (w *world) owners() (count int) {
	for _, n := range w.fleet.Nodes {
		for _, row := range n.Roles() {
			if row.Role == fsm.SchedulerLeader && row.State == cluster.GuardActive {
				count++
			}
		}
	}
	return count
}

// open is how many jobs have not ended.
func (w *world) open() (count int) {
	w.query(func(ctx context.Context, c *pgx.Conn) {
		require.NoError(w.t, c.QueryRow(ctx, `SELECT count(*) FROM forge.jobs WHERE finished_at IS NULL`).Scan(&count))
	})
	return count
}

// query runs f on the harness's own connection.
func (w *world) query(f func(context.Context, *pgx.Conn)) { f(context.Background(), w.super) }

// judge stops the fleet, which checks the order of every trace, and then holds
// everything that was recorded against everything that must be.
func (w *world) judge() {
	w.fleet.Stop()
	tens := int(w.schedule.Length/(10*time.Second)) + 1

	started, twice := w.work.twice()
	require.Empty(w.t, twice)
	require.GreaterOrEqual(w.t, started, leastLeases*tens+ownLeases, "too few leases were started")
	require.Empty(w.t, w.traffic.problems)
	require.GreaterOrEqual(w.t, len(w.traffic.runs), leastRuns*tens+ownRuns, "too few runs were acknowledged")

	w.query(func(ctx context.Context, c *pgx.Conn) { w.judgeHistory(ctx, c, tens) })

	compared, differ := w.replicas.verdict()
	require.Empty(w.t, differ, "replicas differ")
	require.GreaterOrEqual(w.t, compared, leastEntries*tens, "too few entries were compared between replicas")

	taken, err := w.locks.verdict()
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, taken, leastTakeover*tens, "too few exclusive operations")
	require.NoError(w.t, linear.Grants(w.grants.Grants()))
	var events []trace.Event
	for _, incarnations := range w.fleet.Traces() {
		events = slices.Concat(append(incarnations, events)...)
	}
	require.NoError(w.t, linear.Grants(linear.Raises(events)))

	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(w.t, w.problems)
	require.Empty(w.t, w.tally.Missing(w.schedule.Drawn()), "faults were drawn and never happened")
	w.t.Logf("seed %d: %d runs, %d jobs, %d leases started, %d entries compared, %d exclusive operations",
		w.schedule.Seed, len(w.traffic.runs), w.traffic.jobs, started, compared, taken)
}

func (w *world) judgeHistory(ctx context.Context, c *pgx.Conn, tens int) {
	require.NoError(w.t, history.AddAgentEvents(ctx, c, w.journals()))
	for key, outcome := range w.traffic.outcomes {
		require.NoError(w.t, history.AddClientOperation(ctx, c, uuid.UUID(key), outcome))
	}
	r, err := history.Check(ctx, c)
	require.NoError(w.t, err)
	least := leastLeases * tens
	require.NoError(w.t, r.Err(map[string]int{
		"acquire": 1, "write": least + ownLeases, "complete": least/2 + ownLeases, "submit": leastRuns*tens + ownRuns,
	}))

	var missing, bad int
	require.NoError(w.t, c.QueryRow(ctx, `SELECT count(*) FROM unnest($1::text[]) r(id) WHERE NOT EXISTS (SELECT FROM forge.runs WHERE id::text = r.id)`,
		w.traffic.runs).Scan(&missing))
	require.Zero(w.t, missing, "acknowledged runs are gone")
	// Nothing but lost leases and ordered first failures stands in a job's way, and it has attempts enough for both.
	require.NoError(w.t, c.QueryRow(ctx, `SELECT count(*) FROM forge.jobs WHERE state <> 'succeeded'`).Scan(&bad))
	require.Zero(w.t, bad, "jobs did not succeed")
}

// journals are the agents' own logs.
func (w *world) journals() (events []history.AgentEvent) {
	for _, a := range w.fleet.Agents {
		in, err := os.Open(filepath.Join(a.Dir, runner.StartsFile))
		require.NoError(w.t, err)
		lines := bufio.NewScanner(in)
		for n := int64(1); lines.Scan(); n++ {
			var e runner.Entry
			require.NoError(w.t, json.Unmarshal(lines.Bytes(), &e))
			events = append(events, history.AgentEvent{
				Agent: a.Name, Lease: e.Lease, Job: e.Job, What: string(e.What), N: n,
				Generation: int64(e.Generation), Epoch: int64(e.Epoch), Attempt: e.Attempt,
			})
		}
		require.NoError(w.t, errors.Join(lines.Err(), in.Close()))
	}
	return events
}

// The files of a failed run's directory.
const (
	logFile      = "log.txt"
	scheduleFile = "schedule.txt"
	traceFile    = "trace.jsonl"
	historyFile  = "history.jsonl"
)

// keep leaves the whole story of a failed run behind, and nothing of one that passed.
func (w *world) keep(dir string, db *pgtest.Database) {
	if !w.t.Failed() {
		require.NoError(w.t, os.RemoveAll(dir))
		return
	}
	story := w.schedule.String() + "\nwhat happened:\n" + w.tally.String()
	w.t.Logf("%s\nthe log of everybody, traces and history are in %s\nreplay: FORGEYARD_SEED=%d FORGEYARD_FAULTS=%s FORGEYARD_REPLAY=50 go test -tags=hashicorpmetrics,chaos -run TestReplay -timeout 2h ./testkit/seeds",
		story, dir, w.schedule.Seed, w.schedule.Length)
	errs := []error{os.WriteFile(filepath.Join(dir, scheduleFile), []byte(story), 0o600)}
	if w.fleet != nil {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		for node, incarnations := range w.fleet.Traces() {
			for i, events := range incarnations {
				for _, e := range events {
					errs = append(errs, enc.Encode(struct {
						Process string `json:"process"`
						trace.Event
					}{fmt.Sprintf("%s#%d", node, i+1), e}))
				}
			}
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, traceFile), []byte(b.String()), 0o600), dump(db, filepath.Join(dir, historyFile)))
	}
	if err := errors.Join(errs...); err != nil {
		w.t.Errorf("the story of the failed run: %v", err)
	}
}

// dump writes the recorded history and the leases as JSON lines.
func dump(db *pgtest.Database, file string) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, db.Super)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	rows, err := c.Query(ctx, `SELECT to_jsonb(h)::text FROM hist h UNION ALL SELECT to_jsonb(l)::text FROM forge.leases l UNION ALL SELECT to_jsonb(j)::text FROM forge.jobs j`)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
