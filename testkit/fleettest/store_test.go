// An artifact store whose file system hangs.

package fleettest

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

func TestDaemonEndsThoughItsStoreHangs(t *testing.T) {
	t.Parallel()
	w := scenario.Start(t, fleet.Options{Env: []string{fleet.CheapJobs}})
	stop := w.Traffic(t)
	scenario.StopOnHungStore(t, w)
	stop()
	w.Settle(t, 50)
}
