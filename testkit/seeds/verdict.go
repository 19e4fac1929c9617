// What must be true of every seed: progress once the faults are over, and a history that no fault may have broken.

package seeds

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/history"
	"github.com/forgeyard/forgeyard/testkit/journal"
	"github.com/forgeyard/forgeyard/testkit/linear"
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
	w.lastTerm = w.fleet.Nodes[0].Coordination().View().LeaderEpoch.Term
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

	w.query(func(ctx context.Context, c *pgx.Conn) {
		w.judgeHistory(ctx, c, tens)
		w.judgeLeases(ctx, c)
	})

	compared, differ := w.replicas.verdict()
	require.Empty(w.t, differ, "replicas differ")
	require.GreaterOrEqual(w.t, compared, leastEntries*tens, "too few entries were compared between replicas")

	taken, err := w.locks.verdict()
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, taken, leastTakeover*tens, "too few exclusive operations")
	grants := w.grants.Grants()
	require.NoError(w.t, linear.Grants(grants))
	require.Equal(w.t, w.tally.Counts()[LoseDisk] > 0, slices.ContainsFunc(grants, func(g linear.Grant) bool { return g.Kind == linear.Remove }), "removals of members")
	var events []trace.Event
	for _, incarnations := range w.fleet.Traces() {
		events = slices.Concat(append(incarnations, events)...)
	}
	require.NoError(w.t, linear.Grants(linear.Raises(events)))
	w.reached(events, grants)

	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(w.t, w.problems)
	require.Empty(w.t, w.tally.Missing(w.schedule.Drawn()), "faults were drawn and never happened")
	w.t.Logf("seed %d: %d runs, %d jobs, %d leases started, %d entries compared, %d exclusive operations",
		w.schedule.Seed, len(w.traffic.runs), w.traffic.jobs, started, compared, taken)
}

// reached counts what the faults brought about.
func (w *world) reached(events []trace.Event, grants []linear.Grant) {
	w.tally.Add(Takeover, -1) // the first is none
	for _, e := range events {
		switch {
		case e.Kind == trace.Fenced && e.Role == fsm.SchedulerLeader:
			w.tally.Add(Takeover, 1)
		case e.Kind == trace.CheckRefused && strings.HasPrefix(e.Detail, cluster.ErrFenced.Code+":"):
			w.tally.Add(Refusal, 1)
		}
	}
	w.tally.Add(UnknownOutcome, w.locks.unknown) // the administrator has stopped
	w.tally.Add(UnknownOutcome, unanswered(grants))
	if w.lastTerm > w.firstTerm {
		w.tally.Add(Election, 1)
	}
}

// unanswered counts the proposals of which no caller learned what they became. That a
// process was replaced is nobody's proposal: its end is recorded without an answer.
func unanswered(grants []linear.Grant) (n int) {
	for _, g := range grants {
		if g.Outcome == linear.Unknown && g.Kind != linear.Vacate {
			n++
		}
	}
	return n
}

func (w *world) judgeHistory(ctx context.Context, c *pgx.Conn, tens int) {
	require.NoError(w.t, history.AddAgentEvents(ctx, c, history.EventsOf(w.journals())))
	for key, outcome := range w.traffic.told() {
		require.NoError(w.t, history.AddClientOperation(ctx, c, key, outcome))
	}
	r, err := history.Check(ctx, c)
	require.NoError(w.t, err)
	least := leastLeases * tens
	require.NoError(w.t, r.Err(map[string]int{
		"acquire": 1, "write active": least + ownLeases, "complete done": least/2 + ownLeases, "submit": leastRuns*tens + ownRuns,
		"audit": daemons - 1, "member removed": w.tally.Counts()[LoseDisk],
	}))

	var missing, bad int
	require.NoError(w.t, c.QueryRow(ctx, `SELECT count(*) FROM unnest($1::text[]) r(id) WHERE NOT EXISTS (SELECT FROM forge.runs WHERE id::text = r.id)`,
		w.traffic.runs).Scan(&missing))
	require.Zero(w.t, missing, "acknowledged runs are gone")
	// Nothing but lost leases and ordered first failures stands in a job's way, and it has attempts enough for both.
	require.NoError(w.t, c.QueryRow(ctx, `SELECT count(*) FROM forge.jobs WHERE state <> 'succeeded'`).Scan(&bad))
	require.Zero(w.t, bad, "jobs did not succeed")
}

// judgeLeases holds what PostgreSQL recorded of grants and leases, and what the
// agents noted of leases, against the models.
func (w *world) judgeLeases(ctx context.Context, c *pgx.Conn) {
	grants, leases, err := linear.Recorded(ctx, c)
	require.NoError(w.t, err)
	require.NoError(w.t, linear.Grants(grants), "the fence, as PostgreSQL recorded it")
	require.NoError(w.t, linear.Leases(leases), "the leases, as PostgreSQL recorded them")
	rows, err := c.Query(ctx, `SELECT id::text FROM forge.leases WHERE state = 'done'`)
	require.NoError(w.t, err)
	done, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	held := linear.Journals(w.journals(), func(lease string) bool { return slices.Contains(done, lease) })
	require.NoError(w.t, linear.Leases(held), "the leases, as the agents noted them")
}

// journals are the agents' own logs, by agent.
func (w *world) journals() map[string][]runner.Entry {
	all := map[string][]runner.Entry{}
	for _, a := range w.fleet.Agents {
		entries, err := journal.Read(a.Dir)
		require.NoError(w.t, err)
		require.NotEmpty(w.t, entries, "%s has noted nothing", a.Name)
		all[a.Name] = entries
	}
	return all
}
