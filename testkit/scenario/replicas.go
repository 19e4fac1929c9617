// The coordination states of a fleet's daemons, compared entry by entry from their traces.

package scenario

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
)

// checkReplicas requires that all daemons, in all their lives, had the same
// coordination state after the same entry.
func (w *World) checkReplicas(t testing.TB) {
	t.Helper()
	if len(w.Nodes()) == 1 {
		return
	}
	traces := map[string][]trace.Event{}
	for _, n := range w.Nodes() {
		events, err := trace.Read(n.TraceFile())
		require.NoError(t, err)
		traces[n.Name] = events
	}
	compared, err := sameStates(traces)
	require.NoError(t, err)
	require.Greater(t, compared, 10, "too few states were compared")
}

// sameStates returns how many states of one daemon were compared with another
// one's, and an error that names the first pair that differs.
func sameStates(traces map[string][]trace.Event) (compared int, err error) {
	type told struct{ by, hash string }
	states := map[uint64]told{}
	for name, events := range traces {
		for _, e := range events {
			if e.Kind != trace.Applied {
				continue
			}
			other, known := states[e.Index]
			switch {
			case !known:
				states[e.Index] = told{name, e.Hash}
			case other.hash != e.Hash:
				return compared, fmt.Errorf("after entry %d the states of %s and %s differ", e.Index, other.by, name)
			case other.by != name:
				compared++
			}
		}
	}
	return compared, nil
}
