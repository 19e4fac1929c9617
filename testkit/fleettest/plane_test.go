// The job plane of one fleet: a pipeline, bytes, queues, agents, and what operators do, while daemons die.

package fleettest

import (
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// TestJobPlane is one fleet for all, for its start costs more than most of what
// is done to it. The client of the events listens all the time; an agent is cut
// off while the pipeline runs on the others. No time is asserted here, so that it
// may run beside TestLostAgents, which mostly waits.
func TestJobPlane(t *testing.T) {
	t.Parallel()
	const agents, slots = 3, 3
	const canary = "f00tpr1nt"
	w := scenario.Start(t, fleet.Options{Agents: agents, Slots: slots})
	listener := scenario.Listen(t, w)
	cut := scenario.CutAgent(t, w, "agent-3")

	for _, step := range []struct {
		name string
		do   func(testing.TB)
	}{
		{"pipeline", func(t testing.TB) {
			p := scenario.StartPipeline(t, w, canary)
			p.KillLeaderAt(t, "check")
			listener.Cut()
			p.Let(t, "build")
			p.KillDaemonOfAgentAt(t, "test")
			p.Check(t)
		}},
		{"cut off", func(t testing.TB) { cut.Mend(t, 20*time.Second) }},
		{"flood", func(t testing.TB) { scenario.Flood(t, w, agents*slots) }},
		{"why", func(t testing.TB) { scenario.Why(t, w, agents*slots) }},
		{"cancel", func(t testing.TB) { scenario.CancelTree(t, w) }},
		{"rest", func(t testing.TB) { scenario.RestAgent(t, w, "agent-1") }},
		{"store away", func(t testing.TB) { scenario.StoreAway(t, w) }},
		{"RunAddsNoRaftEntries", func(t testing.TB) { scenario.NoEntries(t, w, canary) }},
		{"CanaryStringsNeverInRaftFiles", func(t testing.TB) { scenario.Canary(t, w, canary) }},
		{"nobody schedules", func(t testing.TB) { scenario.WhyNobodySchedules(t, w) }},
	} {
		listener.Cut()
		if !t.Run(step.name, func(t *testing.T) { step.do(t) }) {
			return
		}
	}
	listener.Check(t, 10)
	w.Settle(t, 100)
}

// TestLostAgents has leases of 12 s, so that an agent loses one while it is watched.
func TestLostAgents(t *testing.T) {
	t.Parallel()
	w := scenario.Start(t, fleet.Options{Nodes: 1, Agents: 2, Env: []string{scenario.LeaseEnv}})
	scenario.KillAgent(t, w)
	scenario.PauseAgent(t, w)
	w.Settle(t, 3)
}
