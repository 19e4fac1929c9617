// Two processes under one certificate: who of them may start a lease.

package runner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestAcceptedLeaseIsOneProcesss: two processes under one certificate may both
// hold an order while the agent's link moves; only the first one starts it.
func TestAcceptedLeaseIsOneProcesss(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	g := newGate()
	a := p.agent("a", t.TempDir(), g, "d1")
	// The other process accepts while this one is offered the lease.
	p.exec(`CREATE FUNCTION forge.rival() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.session := 'rival'; RETURN NEW; END $$`)
	p.exec(`CREATE TRIGGER rival BEFORE INSERT ON forge.leases FOR EACH ROW EXECUTE FUNCTION forge.rival()`)
	lease := p.lease("a", nil)
	require.Eventually(t, func() bool { return len(entries(t, a.dir, runner.EntryDispatch)) >= 2 }, soon, 5*time.Millisecond)
	require.Zero(t, g.starts(lease))
	require.Empty(t, entries(t, a.dir, runner.EntryStart))
	require.Equal(t, "rival", one[string](p, `SELECT session FROM forge.leases WHERE id = $1::text::uuid`, lease))
}
