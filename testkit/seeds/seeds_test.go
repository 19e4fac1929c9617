// The seeds of every test run, and what must hold of the schedules themselves.

package seeds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// briefly is the phase with faults in every test run, fully in a chaos run.
const (
	briefly = 6 * time.Second
	fully   = 30 * time.Second
)

// fixed together have every kind of fault.
var fixed = [...]uint64{5425, 868, 2025, 1273, 2660}

// TestSeeds runs the fixed seeds. Each requires that every fault it drew happened,
// all together that the faults had their consequences.
func TestSeeds(t *testing.T) {
	total := NewTally()
	for _, seed := range fixed {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { Run(t, Draw(seed, briefly), total) })
	}
	t.Logf("what happened:\n%s", total)
	for _, kind := range slices.Concat(Kinds(), often()) {
		require.NotZero(t, total.Counts()[kind], "%s never happened", kind)
	}
}

// TestStoppedWhileItsLogHangs: a daemon that is told to stop while its log hangs is
// started again, also when the hang ends in that very instant.
func TestStoppedWhileItsLogHangs(t *testing.T) {
	Run(t, Schedule{Seed: 1, Length: 20 * time.Second, Steps: []Step{
		{At: time.Second, Kind: HungLog, Who: 1, Lasts: 15 * time.Second},
		{At: 2 * time.Second, Kind: Stop, Who: 1, Lasts: 14 * time.Second},
	}}, NewTally())
}

// TestSchedule: a seed gives one schedule, different ones differ, the fixed ones
// together have every kind, and each kind is drawn often enough in many.
func TestSchedule(t *testing.T) {
	require.Equal(t, Draw(7, fully), Draw(7, fully))
	require.NotEqual(t, Draw(7, fully).String(), Draw(8, fully).String())
	drawn := map[Kind]int{}
	for _, seed := range fixed {
		for kind := range Draw(seed, briefly).Drawn() {
			drawn[kind]++
		}
	}
	for _, kind := range Kinds() {
		require.NotZero(t, drawn[kind], "%s in none of the fixed seeds", kind)
	}
	often := map[Kind]int{}
	for seed := range uint64(400) {
		s := Draw(seed, fully)
		for i, step := range s.Steps {
			require.Less(t, step.At, s.Length)
			require.True(t, i == 0 || s.Steps[i-1].At <= step.At)
		}
		for kind := range s.Drawn() {
			often[kind]++
		}
	}
	for _, kind := range Kinds() {
		require.InDelta(t, 200, often[kind], 60, kind)
	}
}
