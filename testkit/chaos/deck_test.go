// The deal is what a seed replays, and it leaves no kind out.

package chaos

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

// Each kind is owed over runs, and no other: also those that this machine may not make.
func TestEveryFaultIsOwed(t *testing.T) {
	var made, owed []string
	for _, f := range append(processFaults(), privilegedFaults()...) {
		made = append(made, f.Name)
	}
	for _, c := range record.Owed() {
		if c.Suite == processes {
			owed = append(owed, c.Fault)
		}
	}
	require.ElementsMatch(t, made, owed)
}

func TestSeedDecidesTheDeal(t *testing.T) {
	all := append(processFaults(), privilegedFaults()...)
	names := func(seed uint64, n int) (dealt []string) {
		d := NewDeck(rand.New(rand.NewPCG(seed, 0)), all, func(f Fault) int { return f.Often })
		for range n {
			dealt = append(dealt, d.Deal().Name)
		}
		return dealt
	}
	const long = 200
	require.Equal(t, names(7, long), names(7, long))
	require.NotEqual(t, names(7, long), names(8, long))
	counts := map[string]int{}
	for _, name := range names(7, len(all)) {
		counts[name]++
	}
	require.Len(t, counts, len(all), "the first round leaves a kind out")
}
