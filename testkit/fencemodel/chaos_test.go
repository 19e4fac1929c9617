//go:build chaos

// The whole state space: what make test has no time for.

package fencemodel

import "testing"

func TestThreeOwnersUnderEveryFault(t *testing.T) {
	prove(t, Right(), Bounds{Owners: 3, Mutations: 2, Crashes: 1, Losses: 1, Restarts: 1}, 500_000)
	prove(t, Right(), Bounds{Owners: 3, Mutations: 1, Crashes: 1, Restarts: 1, Agent: true, AgentRestarts: 1}, 300_000)
}
