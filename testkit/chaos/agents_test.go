//go:build chaos

// Agents that lose their daemon, their link or their time, many at once and each checked, until as many were hit as are owed.

package chaos

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// The faults of TestChaosAgents.
const (
	daemonOfAgent = "an agent's daemon killed"
	shortCut      = "an agent cut off for 20 s, the lease lasts"
	longCut       = "an agent cut off for 20 s, the lease does not"
	pastLease     = "an agent paused past its lease"
)

const (
	cutSpan = 20 * time.Second
	working = 10 // agents with a job at a time, where a lease lasts
	losing  = 8  // agents that lose their lease at a time; as many others take over
)

// TestChaosAgents hits agents, with real supervisors, in two fleets at a time: one
// with leases that last, one with leases of 12 s. It ends when 20 agents of each
// kind were hit, as are owed, or after FORGEYARD_CHAOS_AGENTS_MINUTES (8).
func TestChaosAgents(t *testing.T) {
	const suite = "agents"
	counts := record.Begin(t, suite)
	end := time.Now().Add(time.Duration(number(t, "FORGEYARD_CHAOS_AGENTS_MINUTES", 8) * float64(time.Minute)))
	var mu sync.Mutex
	hits := map[string]int{}
	// until repeats one kind of fault until enough agents were hit.
	until := func(t *testing.T, kind string, hit func() int) {
		owed := record.Owes(suite, kind)
		require.Positive(t, owed, kind)
		for n := 0; n < owed && !t.Failed() && (n == 0 || time.Now().Before(end)); {
			begun := time.Now()
			got := hit()
			n += got
			mu.Lock()
			hits[kind] += got
			mu.Unlock()
			counts.Broken(begun, time.Now())
			t.Logf("%s: %d of %d owed", kind, n, owed)
		}
	}
	t.Run("fleets", func(t *testing.T) {
		t.Run("leases last", func(t *testing.T) {
			t.Parallel()
			w := scenario.Start(t, fleet.Options{Agents: working, Slots: 1})
			until(t, daemonOfAgent, func() int { return scenario.KillDaemonsOfAgents(t, w, working) })
			until(t, shortCut, func() int { return scenario.CutAgents(t, w, working, cutSpan) })
			w.Settle(t, 2*working)
		})
		t.Run("leases end", func(t *testing.T) {
			t.Parallel()
			w := scenario.Start(t, fleet.Options{Agents: 2 * losing, Slots: 1, Env: []string{scenario.LeaseEnv}})
			until(t, pastLease, func() int { return scenario.LoseLeases(t, w, losing, 0, scenario.PauseFault()) })
			until(t, longCut, func() int { return scenario.LoseLeases(t, w, losing, cutSpan, scenario.CutFault()) })
			w.Settle(t, 2*losing)
		})
	})
	for _, kind := range []string{daemonOfAgent, shortCut, longCut, pastLease} {
		counts.Add(kind, hits[kind])
		require.NotZero(t, hits[kind], "%s never happened", kind)
	}
}
