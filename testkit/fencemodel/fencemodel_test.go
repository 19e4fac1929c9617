// The right protocol is proven, every wrong one is refuted by the same explorer.

package fencemodel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRightProtocolIsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		protocol Protocol
		bounds   Bounds
		least    int // fewer states mean that the model has lost what made it worth exploring
	}{
		"two owners, every fault":     {Right(), Bounds{Owners: 2, Mutations: 2, Crashes: 1, Losses: 1, Restarts: 1}, 15_000},
		"three owners":                {Right(), Bounds{Owners: 3, Mutations: 2}, 5_000},
		"two owners and an agent":     {Right(), Bounds{Owners: 2, Mutations: 1, Crashes: 1, Losses: 1, Restarts: 1, Agent: true, AgentRestarts: 1}, 100_000},
		"three owners and an agent":   {Right(), Bounds{Owners: 3, Mutations: 1, Agent: true, AgentRestarts: 1}, 35_000},
		"FOR SHARE, two owners, both": {ForShare(), Bounds{Owners: 2, Mutations: 1, Crashes: 1, Losses: 1}, 2_000},
	} {
		t.Run(name, func(t *testing.T) { prove(t, c.protocol, c.bounds, c.least) })
	}
}

// prove explores everything and requires that it was worth it. It returns how many states there are.
func prove(t *testing.T, p Protocol, b Bounds, least int) int {
	t.Helper()
	r := Explore(p, b)
	t.Logf("%s: %s", p.Name, r)
	require.Empty(t, r.Violation, "%s", r)
	require.Greater(t, r.States, least)
	require.True(t, r.Interfered, "no raise was committed while an older owner was at work")
	impossible := map[string]bool{
		"crashes": b.Crashes == 0, "lost replies": b.Losses == 0, "restarts of the database": b.Restarts == 0,
		"sessions ended by a raise": p.Name != Right().Name,
		"jobs started":              !b.Agent, "orders of an older epoch": !b.Agent, "orders repeated": !b.Agent, "restarts of the agent": b.AgentRestarts == 0,
	}
	for what, n := range r.Seen {
		require.NotEqual(t, impossible[what], n > 0, "%d %s", n, what)
	}
	return r.States
}

// TestWrongProtocolsAreRefuted needs no fault at all for most of them.
func TestWrongProtocolsAreRefuted(t *testing.T) {
	for _, p := range Wrong() {
		t.Run(p.Name, func(t *testing.T) { refute(t, p, Bounds{Owners: 2, Mutations: 2, Crashes: 1, Losses: 1}) })
	}
}

// refute returns what is violated.
func refute(t *testing.T, p Protocol, b Bounds) string {
	t.Helper()
	r := Explore(p, b)
	t.Logf("%s", r)
	require.NotEmpty(t, r.Violation, "the explorer takes a wrong protocol for a right one: %s", r)
	require.NotEmpty(t, r.Trace)
	return r.Violation
}

// TestWrongAgentsAreRefuted beside the right owners, and for what the agent does.
func TestWrongAgentsAreRefuted(t *testing.T) {
	for _, p := range WrongAgents() {
		t.Run(p.Name, func(t *testing.T) {
			require.Contains(t, refute(t, p, Bounds{Owners: 2, Mutations: 1, Agent: true, AgentRestarts: 1}), "the agent ")
		})
	}
}
