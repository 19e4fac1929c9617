//go:build chaos

// A fleet that works for a long time with few faults: what its processes hold must not grow.

package chaos

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

const (
	sampleEvery  = 5 * time.Second
	soakRun      = 10 // jobs
	soakRunEvery = 2 * time.Second
	leastRate    = 2.0 // jobs a second that must end, less would prove nothing
)

// soakFaults leave every process alive, or nothing could be said of it: a connection,
// a session or a link is lost, and must leave nothing behind.
func soakFaults(w *scenario.World) []struct {
	name string
	hit  func(*testing.T, int)
} {
	node := func(i int) *fleet.Node { return w.Nodes()[i%len(w.Nodes())] }
	agent := func(i int) *fleet.Agent { return w.Agents()[i%len(w.Agents())] }
	return []struct {
		name string
		hit  func(*testing.T, int)
	}{
		{"a daemon cut off", func(t *testing.T, i int) {
			before := dropped(t, w)
			require.NoError(t, w.Partition(node(i).Name, true))
			wait(t.Context(), 3*time.Second)
			require.Greater(t, dropped(t, w), before, "nothing was cut")
			require.NoError(t, w.Heal(node(i).Name))
		}},
		{"a daemon without PostgreSQL", func(t *testing.T, i int) {
			before := node(i).Proxy().Resets()
			node(i).Proxy().Cut()
			wait(t.Context(), 3*time.Second)
			require.Greater(t, node(i).Proxy().Resets(), before, "nothing was cut")
			node(i).Proxy().Heal()
		}},
		{"a daemon paused", func(t *testing.T, i int) { // which the kernel says of its process
			require.NoError(t, node(i).Pause(t.Context()))
			wait(t.Context(), 3*time.Second)
			require.NoError(t, node(i).Resume(t.Context()))
		}},
		{"an agent cut off", func(t *testing.T, i int) {
			before := w.Relay().Dropped()
			w.CutAgent(agent(i).Name)
			wait(t.Context(), 12*time.Second) // longer than its link lasts
			require.Greater(t, w.Relay().Dropped(), before, "nothing was cut")
			w.HealAgent(agent(i).Name)
		}},
		{"the reply of a lease batch lost", func(t *testing.T, _ int) { scenario.LoseLeaseReply(t, w, true) }},
	}
}

// dropped counts what cuts swallowed so far.
func dropped(t *testing.T, w *scenario.World) uint64 {
	t.Helper()
	n, err := w.Dropped()
	require.NoError(t, err)
	return n
}

// TestSoak runs for FORGEYARD_SOAK_MINUTES (60) with a fault a minute. Memory and file
// descriptors of each process, threads of each agent, goroutines and database
// connections of the daemons must be flat after the first quarter, enough jobs must have
// ended, no process may have been replaced, and the fleet's history is checked as ever.
func TestSoak(t *testing.T) {
	counts := record.Begin(t, "soak")
	minutes := number(t, "FORGEYARD_SOAK_MINUTES", 60)
	span := time.Duration(minutes * float64(time.Minute))
	w := scenario.Start(t, fleet.Options{Agents: 4, Slots: 4, Namespaces: true})
	listener := scenario.Listen(t, w)
	ctx, done := context.WithTimeout(t.Context(), span)
	defer done()
	var work sync.WaitGroup
	defer work.Wait()
	busy, halt := context.WithCancel(t.Context()) // to the end of the last fault, which needs leases
	defer halt()
	submitted := 0
	work.Go(func() { submitted = submitSlowly(busy, w.Fleet) })

	m, faults, made := newMeasures(t, w), soakFaults(w), map[string]int{}
	pause := min(time.Minute, span/time.Duration(3*len(faults)))
	for i, next := 0, time.Now().Add(pause); ctx.Err() == nil; {
		m.take(t)
		if time.Now().After(next) {
			f := faults[i%len(faults)]
			begun := time.Now()
			f.hit(t, i)
			counts.Broken(begun, time.Now())
			listener.Cut()
			made[f.name]++
			i, next = i+1, time.Now().Add(pause)
		}
		wait(ctx, sampleEvery)
	}
	halt()
	work.Wait()
	m.take(t)
	v := w.Settle(t, submitted/2)
	t.Logf("%d jobs submitted, %d ended, in %s", submitted, v.Terminal, span)
	require.GreaterOrEqual(t, float64(v.Terminal), leastRate*span.Seconds(), "too little traffic")
	for _, f := range faults {
		counts.Add(f.name, made[f.name])
		require.NotZero(t, made[f.name], "%s never happened", f.name)
	}
	m.flat(t)
	if minutes >= 60 { // shorter ones do not add up to a long one
		counts.Add("an hour flat", 1)
	}
}

// submitSlowly submits short runs, some with an output, until ctx ends. It returns how many jobs that were.
func submitSlowly(ctx context.Context, f *fleet.Fleet) (jobs int) {
	for i := 0; ctx.Err() == nil; i++ {
		spec := fleet.ShellRun(fmt.Sprintf("soak-%05d", i), soakRun, "echo some output; echo kept >kept; sleep 0.1")
		spec.Jobs[0].Outputs = []runner.Output{{Name: "kept", Path: "kept"}}
		// A daemon that is broken at the moment refuses; the next run goes to another one.
		if _, err := f.Submit(ctx, i, spec); err == nil {
			jobs += soakRun
		}
		wait(ctx, soakRunEvery)
	}
	return jobs
}
