//go:build chaos

// The whole state space: what make test has no time for.

package fencemodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func TestThreeOwnersUnderEveryFault(t *testing.T) {
	const suite = "models"
	counts := record.Begin(t, suite)
	for _, c := range []struct {
		counted string
		bounds  Bounds
	}{
		{"a state of three owners under every fault", Bounds{Owners: 3, Mutations: 2, Crashes: 1, Losses: 1, Restarts: 1}},
		{"a state of three owners and an agent under faults", Bounds{Owners: 3, Mutations: 1, Crashes: 1, Restarts: 1, Agent: true, AgentRestarts: 1}},
	} {
		least := record.Owes(suite, c.counted)
		require.Positive(t, least, c.counted)
		counts.Add(c.counted, prove(t, Right(), c.bounds, least))
	}
}
