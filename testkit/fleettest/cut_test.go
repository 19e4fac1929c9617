// Daemons that cannot reach each other.

package fleettest

import (
	"testing"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

func TestIsolatedLeaderAndLostQuorum(t *testing.T) {
	t.Parallel()
	w := scenario.Start(t, fleet.Options{Env: []string{fleet.CheapJobs}, Namespaces: true})
	stop := w.Traffic(t)
	scenario.IsolateOwner(t, w)
	stop()
	scenario.LoseQuorum(t, w, 4)
	w.Settle(t, 50)
}
