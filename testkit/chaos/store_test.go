//go:build chaos

// The artifact store killed under load: what needs bytes waits and says so, everything else goes on.

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

const (
	storePipelines = 25 // of traffic
	storeSpan      = time.Minute
	storeLease     = "20s" // so that a job's heartbeat says soon what it waits for
	storeBound     = 3 * time.Minute
	killStore      = "the artifact store killed"
)

// TestChaosStore works on an S3 server that is killed FORGEYARD_CHAOS_STORE_KILLS
// times (4), every other time together with a daemon, once with the one that schedules.
func TestChaosStore(t *testing.T) {
	counts := record.Begin(t, "store")
	kills := int(number(t, "FORGEYARD_CHAOS_STORE_KILLS", 4))
	seed := seedOf(t)
	t.Logf("seed %d: replay with `make chaos SEED=%d`", seed, seed)
	g := newGateway(t)
	w := scenario.Start(t, fleet.Options{Agents: 4, Slots: 4, Fsync: true, CAS: g.url(), Env: append(g.env(), "FORGEYARD_LEASE_TTL="+storeLease)})
	c := newClient(t, w.Fleet, seed, upload(t, w.Fleet))
	n := newNemesis(t, w.Fleet)
	ctx, done := context.WithTimeout(t.Context(), storeSpan+time.Duration(kills)*storeBound)
	var work sync.WaitGroup
	defer work.Wait()
	defer done() // first
	work.Go(func() {
		if got := c.submitAll(ctx, storePipelines, storeSpan); got != storePipelines {
			t.Errorf("only %d pipelines were submitted", got)
		}
	})
	storm := NewStorm(seed, 4, time.Second, 3*time.Second, []Kind{{killStore, 1, time.Second, 5 * time.Second}})
	extra, free := 0, 0
	for i := range kills {
		b := storm.Next()
		begun := time.Now()
		jobs, without := withoutStore(t, w, g, b, i)
		extra += jobs
		if without {
			free++
		}
		counts.Broken(begun, time.Now())
		n.count(killStore)
		wait(ctx, b.Rest)
	}
	require.NotZero(t, free, "no job ended without the store: all slots were held each time")
	work.Wait()
	require.NoError(t, w.WaitTerminal(ctx))
	a := newAccounts(t, w, c, n)
	a.checkAll(storePipelines, extra)
	counts.Add(killStore, n.done[killStore])
}

// withoutStore kills the store and shows that a job without bytes runs to its end, unless
// jobs that wait for bytes hold every slot by then, while one with an output waits, names
// the reason, and ends well once the store is back. It returns how many jobs it submitted,
// and whether the one without bytes ended without the store.
func withoutStore(t *testing.T, w *scenario.World, g *gateway, b Blow, i int) (jobs int, without bool) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), storeBound)
	defer done()
	require.NoError(t, g.proc.Kill())
	var victim *fleet.Node
	if i%2 == 1 {
		victim = w.Nodes()[b.Victim%len(w.Nodes())]
		if i == 1 { // once the scheduler's, so that two epochs have leased
			var err error
			victim, _, err = w.RoleOwner(ctx, fsm.SchedulerLeader, 0)
			require.NoError(t, err)
		}
		require.NoError(t, victim.Kill())
	}
	idle := w.Accepted(t, i, fleet.ShellRun(fmt.Sprintf("no-bytes-%d", i), 1, "true"))
	keep := fleet.ShellRun(fmt.Sprintf("bytes-%d", i), 1, "echo kept >kept")
	keep.Jobs[0].Outputs, keep.Jobs[0].AttemptLimit = []runner.Output{{Name: "kept", Path: "kept"}}, surviving
	kept := w.Accepted(t, i, keep)

	without = endsOrNoSlotIsFree(ctx, t, w, idle.ID)
	if without {
		t.Logf("without the store: %s", waitNote(ctx, t, w, kept.ID))
	} else {
		t.Log("without the store: jobs that wait for it hold every slot")
	}
	wait(ctx, b.Lasts)
	require.NoError(t, g.start(t.Context()))
	if victim != nil {
		require.NoError(t, victim.Resume(ctx))
	}
	for _, run := range []runner.Run{idle, kept} {
		ended, err := w.WaitRun(ctx, run.ID)
		require.NoError(t, err)
		require.Equal(t, runner.RunSucceeded, ended.State)
	}
	return 2, without
}

// endsOrNoSlotIsFree waits until the run has succeeded, or until every slot is held by a
// job that says that it waits for the store.
func endsOrNoSlotIsFree(ctx context.Context, t *testing.T, w *scenario.World, run string) (ended bool) {
	t.Helper()
	for {
		var state runner.JobState // of its one job
		require.NoError(t, w.Query(ctx, `SELECT state FROM forge.jobs WHERE run_id = $1`, []any{run}, &state))
		if state == runner.JobSucceeded {
			return true
		}
		var free int
		require.NoError(t, w.Query(ctx, `SELECT (SELECT sum(slots) FROM forge.agents) -
			(SELECT count(*) FROM forge.leases WHERE state = 'active' AND note LIKE '%artifact store%')`, nil, &free))
		if free == 0 {
			return false
		}
		wait(ctx, clientPause)
	}
}

// waitNote returns what the one job of a run says that it waits for.
func waitNote(ctx context.Context, t *testing.T, w *scenario.World, run string) string {
	t.Helper()
	for {
		for _, n := range w.Nodes() {
			var doc runner.RunDocument
			if n.Call(ctx, http.MethodGet, "/v1/runs/"+run, nil, &doc) != nil {
				continue
			}
			require.Equal(t, runner.RunRunning, doc.State, "a job kept its output without a store")
			for _, l := range doc.Jobs[0].Leases {
				if l.State == runner.LeaseActive && strings.Contains(l.Note, "artifact store") {
					return l.Note
				}
			}
		}
		require.NoError(t, ctx.Err(), "no job says that it waits for the store")
		wait(ctx, clientPause)
	}
}
