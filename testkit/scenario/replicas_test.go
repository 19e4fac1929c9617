// States are compared between daemons and between the lives of one, and nothing else is.

package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
)

func TestSameStates(t *testing.T) {
	after := func(index uint64, hash string) trace.Event {
		return trace.Event{Kind: trace.Applied, Index: index, Hash: hash}
	}
	a := []trace.Event{after(4, "x"), {Kind: trace.Grant}, after(5, "y"), after(5, "y")}
	compared, err := sameStates(map[string][]trace.Event{"a": a, "b": {after(5, "y"), after(6, "z")}})
	require.NoError(t, err)
	require.Positive(t, compared)
	compared, err = sameStates(map[string][]trace.Event{"a": a, "b": {{Kind: trace.Grant}}})
	require.NoError(t, err)
	require.Zero(t, compared)
	_, err = sameStates(map[string][]trace.Event{"a": a, "b": {after(5, "other")}})
	require.ErrorContains(t, err, "after entry 5")
	_, err = sameStates(map[string][]trace.Event{"a": append(a, after(4, "other"))})
	require.ErrorContains(t, err, "after entry 4")
}
