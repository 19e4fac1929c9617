//go:build chaos

// Faults drawn by seed, one after the other, until the time is over.

package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/record"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// A fleet is broken roundsOfAFleet times and then settled: its whole history is
// checked. leasesOfARound is the least traffic for each round.
const (
	roundsOfAFleet = 14
	leasesOfARound = 20
)

// TestChaosProcesses runs scenarios on fleets of real processes. It fails when a
// scenario does, when a kind of fault never happened, and when too little traffic ran.
// FORGEYARD_CHAOS_ONLY, an expression, leaves out faults whose names it does not match.
func TestChaosProcesses(t *testing.T) {
	counts := record.Begin(t, processes)
	minutes, err := strconv.ParseFloat(os.Getenv("FORGEYARD_CHAOS_MINUTES"), 64)
	require.NoError(t, err, "FORGEYARD_CHAOS_MINUTES says how long to break things")
	seed := seedOf(t)
	t.Logf("seed %d: replay with `make chaos SEED=%d`", seed, seed)
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	only, err := regexp.Compile(os.Getenv("FORGEYARD_CHAOS_ONLY"))
	require.NoError(t, err)
	faults := slices.DeleteFunc(Faults(), func(f Fault) bool { return !only.MatchString(f.Name) })
	require.NotEmpty(t, faults)
	o := fleet.Options{Agents: 4, Slots: 8, Env: []string{fleet.CheapJobs}, Namespaces: true}
	if fleet.Privileged() {
		o.DataSpace = scenario.DataSpace
	} else {
		t.Log("not privileged: links are cut by the relay, no disk is filled")
	}
	deck, done, round := NewDeck(rand.New(rand.NewPCG(seed, 0)), faults, func(f Fault) int { return f.Often }), map[string]int{}, 0
	for !t.Failed() && time.Now().Before(end) {
		ok := t.Run(fmt.Sprintf("fleet-from-round-%d", round+1), func(t *testing.T) {
			w := scenario.Start(t, o)
			stop, rounds := w.Traffic(t), 0
			for ; rounds < roundsOfAFleet && time.Now().Before(end) && !t.Failed(); rounds++ {
				round++
				fault := deck.Deal()
				if fault.Calm {
					stop()
				}
				begun := time.Now()
				if t.Run(fmt.Sprintf("%d %s", round, fault.Name), func(t *testing.T) { fault.Run(t, w) }) {
					done[fault.Name]++
				}
				counts.Broken(begun, time.Now())
				if fault.Calm {
					stop = w.Traffic(t)
				}
			}
			stop()
			if rounds == 0 {
				return // its start took the time that was left
			}
			v := w.Settle(t, rounds*leasesOfARound)
			t.Logf("%d rounds: %d jobs, %d leases, %d starts, highest epoch %d", rounds, v.Terminal, v.LeasesMade, v.Starts, v.HighestEpoch)
		})
		if !ok {
			t.Logf("round %d failed; replay with `make chaos SEED=%d`", round, seed)
		}
	}
	for _, f := range faults {
		counts.Add(f.Name, done[f.Name])
	}
	for _, f := range faults {
		require.NotZero(t, done[f.Name], "%s never happened: give it more minutes", f.Name)
	}
}

// seedOf is FORGEYARD_CHAOS_SEED, or a new one.
func seedOf(t *testing.T) uint64 {
	text := os.Getenv("FORGEYARD_CHAOS_SEED")
	if text == "" {
		return uint64(time.Now().UnixNano()) % 1e9
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, "FORGEYARD_CHAOS_SEED")
	return seed
}
