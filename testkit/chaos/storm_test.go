// The draw is what a seed replays, and it leaves no kind out.

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeedDecidesTheStorm(t *testing.T) {
	kinds := []Kind{{"a", 3, time.Second, 2 * time.Second}, {"b", 1, 0, time.Minute}, {"c", 1, time.Hour, time.Hour}}
	draw := func(seed, stream uint64, n int) (blows []Blow) {
		s := NewStorm(seed, stream, time.Second, 3*time.Second, kinds)
		for range n {
			blows = append(blows, s.Next())
		}
		return blows
	}
	const long = 203 // one of each, then forty decks
	require.Equal(t, draw(7, 1, long), draw(7, 1, long))
	require.NotEqual(t, draw(7, 1, long), draw(8, 1, long))
	require.NotEqual(t, draw(7, 1, long), draw(7, 2, long))
	counts := map[string]int{}
	for i, b := range draw(7, 1, long) {
		if counts[b.Kind]++; i == len(kinds)-1 {
			require.Len(t, counts, len(kinds), "the first draws leave a kind out")
		}
		require.GreaterOrEqual(t, b.Rest, time.Second)
		require.LessOrEqual(t, b.Rest, 3*time.Second)
		require.GreaterOrEqual(t, b.Victim, 0)
	}
	require.Equal(t, map[string]int{"a": 121, "b": 41, "c": 41}, counts)
}
