// Hints of a changed view: coalesced, and never waited for.

package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

func TestHintsCoalesceAndNeverBlock(t *testing.T) {
	var h cluster.Hints
	h.Notify() // nobody listens
	a, stopA := h.Subscribe()
	b, stopB := h.Subscribe()
	for range 5 {
		h.Notify()
	}
	require.Len(t, a, 1)
	<-a
	stopA()
	stopA()
	h.Notify()
	require.Empty(t, a)
	require.Len(t, b, 1, "a slow reader keeps its hint")
	stopB()
}
