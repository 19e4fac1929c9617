//go:build chaos

// Thousands of jobs while daemons, agents and PostgreSQL are killed all the time: nothing lost, nothing run twice.

package chaos

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// The fleet of TestChaosJobs.
const (
	jobAgents = 20
	jobSlots  = 2
)

// drained bounds the work that is left when the faults are over.
const drained = 25 * time.Minute

// TestChaosJobs submits FORGEYARD_CHAOS_JOBS jobs (10,000) to a fleet with a durable
// PostgreSQL while faults go on for FORGEYARD_CHAOS_JOBS_MINUTES (10): daemons,
// agents and PostgreSQL, each broken every few seconds. Then it holds the tables,
// the agents' own journals, what clients were told, logs and artifacts against
// each other. It fails too when a kind of fault did not happen often enough.
func TestChaosJobs(t *testing.T) {
	counts := record.Begin(t, "jobs")
	jobs := int(number(t, "FORGEYARD_CHAOS_JOBS", 10_000))
	minutes := number(t, "FORGEYARD_CHAOS_JOBS_MINUTES", 10)
	seed := seedOf(t)
	t.Logf("seed %d: replay with `make chaos SEED=%d`", seed, seed)
	span := time.Duration(minutes * float64(time.Minute))
	pipelines := (jobs + JobsOfAPipeline - 1) / JobsOfAPipeline

	w := scenario.Start(t, fleet.Options{Agents: jobAgents, Slots: jobSlots, Fsync: true})
	c := newClient(t, w.Fleet, seed, upload(t, w.Fleet))
	n := newNemesis(t, w.Fleet)
	start := time.Now()
	ctx, done := context.WithTimeout(t.Context(), span)
	defer done()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { n.rage(ctx, NewStorm(seed, 1, 2*time.Second, 5*time.Second, daemonKinds()), n.hitDaemons) })
	work.Go(func() { n.rage(ctx, NewStorm(seed, 2, 2*time.Second, 5*time.Second, agentKinds()), n.hitAgents) })
	work.Go(func() { n.rage(ctx, NewStorm(seed, 3, 5*time.Second, 10*time.Second, outlasting()), n.hitFirst) })

	all, enough := context.WithTimeout(t.Context(), span+drained)
	defer enough()
	require.Equal(t, pipelines, c.submitAll(all, pipelines, span*9/10), "not everything was submitted")
	submitted := time.Since(start)
	work.Wait()
	broken := time.Since(start)
	counts.Broken(start, start.Add(broken))
	require.False(t, t.Failed(), "a fault could not be made")
	require.NoError(t, w.WaitTerminal(all))
	total := time.Since(start)
	t.Logf("%d jobs submitted within %s, faults until %s, all terminal after %s: %.1f jobs/s",
		pipelines*JobsOfAPipeline, submitted.Round(time.Second), broken.Round(time.Second), total.Round(time.Second), float64(pipelines*JobsOfAPipeline)/total.Seconds())

	a := newAccounts(t, w, c, n)
	a.checkAll(pipelines, 0)
	a.checkFaults(minutes, counts)
}

// upload packs a small source for runs to name.
func upload(t *testing.T, f *fleet.Fleet) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "source.txt"), []byte("source\n"), 0o600))
	digest, err := f.Upload(t.Context(), dir)
	require.NoError(t, err)
	return digest
}

// number reads an environment variable.
func number(t *testing.T, name string, otherwise float64) float64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err, name)
	require.Positive(t, v, name)
	return v
}
