// Processes that sleep and wake, actors that crash inside processes that live, and processes whose disk fails.

package fleettest

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

func TestPausedOwnerCrashedActorsAndFailedDisk(t *testing.T) {
	t.Parallel()
	w := scenario.Start(t, fleet.Options{Env: []string{fleet.CheapJobs}})
	stop := w.Traffic(t)
	scenario.PauseOwner(t, w)
	for _, kind := range scenario.Kinds() {
		scenario.CrashActor(t, w, kind)
	}
	scenario.CrashRoot(t, w)
	scenario.FailDisk(t, w, scenario.RefusedSync())
	stop()
	w.Settle(t, 100)
}
