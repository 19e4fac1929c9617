// Daemons that die: kill -9 from outside, and the root actor's death from within.

package fleettest

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// leasesBeforeKill is the least traffic before a kill: less would prove nothing.
const leasesBeforeKill = 500

func TestKillLeaderFailover(t *testing.T) {
	w := scenario.Start(t, fleet.Options{Agents: 4, Slots: 8, Env: []string{fleet.CheapJobs}})
	stop := w.Traffic(t)
	for range 3 {
		scenario.KillOwner(t, w, leasesBeforeKill)
	}
	stop()
	w.Settle(t, 3*leasesBeforeKill)
}
