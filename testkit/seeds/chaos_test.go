//go:build chaos

// Seeds drawn until the time is over.

package seeds

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Names of environment variables.
const (
	minutesEnv = "FORGEYARD_SEEDS_MINUTES" // how long to draw
	firstEnv   = "FORGEYARD_CHAOS_SEED"    // where to begin; by default somewhere new
	ledgerEnv  = "FORGEYARD_SEEDS_LEDGER"  // a file to which a line with the counts of the run is added
)

// goal is how many seeds are owed over runs.
const goal = 200

// TestChaosSeeds runs one seed after the other, and fails with the first that
// does, or when a kind of fault never happened.
func TestChaosSeeds(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv(minutesEnv), 64)
	require.NoError(t, err, "%s says how long to break things", minutesEnv)
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	first, total, done := number(t, firstEnv, uint64(time.Now().UnixNano())%1e9), NewTally(), 0
	for seed := first; !t.Failed() && time.Now().Before(end); seed++ {
		if t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { Run(t, Draw(seed, fully), total) }) {
			done++
			t.Logf("%d seeds so far, %d are owed over runs", done, goal)
		}
	}
	t.Logf("%d seeds from %d; faults that happened:\n%s", done, first, total)
	record(t, first, done, total)
	for _, kind := range Kinds() {
		require.NotZero(t, total.Counts()[kind], "%s never happened: give it more minutes", kind)
	}
}

// record adds the run to the ledger and says what all its runs come to.
func record(t *testing.T, first uint64, done int, total *Tally) {
	t.Helper()
	file := os.Getenv(ledgerEnv)
	if file == "" {
		return
	}
	type line struct {
		First  uint64       `json:"first_seed"`
		Seeds  int          `json:"seeds"`
		Counts map[Kind]int `json:"faults"`
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close()) }()
	require.NoError(t, json.NewEncoder(out).Encode(line{first, done, total.Counts()}))
	_, err = out.Seek(0, 0)
	require.NoError(t, err)
	sum := line{Counts: map[Kind]int{}}
	for dec := json.NewDecoder(out); dec.More(); {
		var l line
		require.NoError(t, dec.Decode(&l))
		sum.Seeds += l.Seeds
		for kind, n := range l.Counts {
			sum.Counts[kind] += n
		}
	}
	t.Logf("%d of %d seeds over all runs: %v", sum.Seeds, goal, sum.Counts)
}
