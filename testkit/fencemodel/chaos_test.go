//go:build chaos

// The whole state space: what make test has no time for.

package fencemodel

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func TestThreeOwnersUnderEveryFault(t *testing.T) {
	counts := record.Begin(t, "models")
	for _, c := range []struct {
		counted string
		bounds  Bounds
		least   int
	}{
		{"a state of three owners under every fault", Bounds{Owners: 3, Mutations: 2, Crashes: 1, Losses: 1, Restarts: 1}, 500_000},
		{"a state of three owners and an agent under faults", Bounds{Owners: 3, Mutations: 1, Crashes: 1, Restarts: 1, Agent: true, AgentRestarts: 1}, 300_000},
	} {
		counts.Add(c.counted, prove(t, Right(), c.bounds, c.least), c.least)
	}
}
