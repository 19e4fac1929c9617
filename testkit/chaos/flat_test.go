// A leak is seen through noise and spikes; noise, spikes and what only the warm-up took are not taken for one.

package chaos

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFlat(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	series := func(at func(i int) float64) (s []Sample) {
		for i := range 200 {
			s = append(s, Sample{time.Duration(i) * 5 * time.Second, at(i) + noise.Float64()*4})
		}
		return s
	}
	flat := Flat{Share: 0.1, Least: 8}
	for name, c := range map[string]struct {
		at   func(i int) float64
		flat bool
	}{
		"still":    {func(int) float64 { return 50 }, true},
		"warm-up":  {func(i int) float64 { return float64(min(i, 45)) * 10 }, true},
		"spikes":   {func(i int) float64 { return 50 + float64(i%10/9*400) }, true},
		"sinks":    {func(i int) float64 { return 500 - float64(i) }, true},
		"leak":     {func(i int) float64 { return 50 + float64(i)*0.1 }, false},
		"in steps": {func(i int) float64 { return 50 + float64(i/40*5) }, false},
	} {
		trend, err := flat.Of(series(c.at))
		require.Equal(t, c.flat, err == nil, "%s: %+v %v", name, trend, err)
	}
	_, err := flat.Of(nil)
	require.Error(t, err)
	_, err = flat.Of(series(func(int) float64 { return 1 })[:12])
	require.ErrorContains(t, err, "no trend")
}
