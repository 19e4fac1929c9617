//go:build chaos

// Seeds drawn until the time is over, and one seed again and again.

package seeds

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

// Names of environment variables.
const (
	minutesEnv = "FORGEYARD_SEEDS_MINUTES" // how long to draw
	seedEnv    = "FORGEYARD_SEED"          // a seed to replay
	replayEnv  = "FORGEYARD_REPLAY"        // how often; 1 by default: one seed has many interleavings
	lengthEnv  = "FORGEYARD_FAULTS"        // its phase with faults, when it is not that of a chaos run
	firstEnv   = "FORGEYARD_CHAOS_SEED"    // where to begin; by default somewhere new
)

// TestChaosSeeds runs one seed after the other, and fails with the first that
// does, or when a kind of fault, or what faults must bring about, never happened.
func TestChaosSeeds(t *testing.T) {
	counts := record.Begin(t, suite)
	minutes, err := strconv.ParseFloat(os.Getenv(minutesEnv), 64)
	require.NoError(t, err, "%s says how long to break things", minutesEnv)
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	first, total, done := number(t, firstEnv, uint64(time.Now().UnixNano())%1e9), NewTally(), 0
	for seed := first; !t.Failed() && time.Now().Before(end); seed++ {
		if t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { Run(t, Draw(seed, fully), total) }) {
			done++
			t.Logf("%d seeds so far, %d are owed over runs", done, record.Owes(suite, aSeed))
		}
	}
	t.Logf("%d seeds from %d; what happened:\n%s", done, first, total)
	counts.Add(aSeed, done)
	for _, kind := range slices.Concat(Kinds(), Effects()) {
		counts.Add(string(kind), total.Counts()[kind])
		require.NotZero(t, total.Counts()[kind], "%s never happened: give it more minutes", kind)
	}
}

// TestReplay runs FORGEYARD_SEED again and again, as a chaos run does.
func TestReplay(t *testing.T) {
	seed := number(t, seedEnv, 0)
	require.NotZero(t, seed, "%s says which seed", seedEnv)
	length := fully
	if text := os.Getenv(lengthEnv); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, lengthEnv)
	}
	for i := range number(t, replayEnv, 1) {
		t.Run(fmt.Sprintf("%d", i+1), func(t *testing.T) { Run(t, Draw(seed, length), NewTally()) })
	}
}

// number reads an environment variable.
func number(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}
