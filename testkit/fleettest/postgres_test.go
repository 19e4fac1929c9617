// PostgreSQL that is away, for one daemon or for all.

package fleettest

import (
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

func TestPostgresAway(t *testing.T) {
	t.Parallel()
	w := scenario.Start(t, fleet.Options{Env: []string{fleet.CheapJobs}})
	scenario.StopIdlePostgres(t, w)
	stop := w.Traffic(t)
	scenario.CutOwnerFromPostgres(t, w)
	scenario.CutOwnersLeaderLink(t, w)
	scenario.LoseLeaseReply(t, w, true)
	scenario.LoseCompletionReply(t, w)
	scenario.StopPostgres(t, w, 30*time.Second)
	stop()
	scenario.LoseSubmissionReply(t, w)
	w.Settle(t, 50)
}
