// Reservations: the slot of an agent that a lease holds before it is accepted.

package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
)

// TestReservationFenced: a slot is reserved under the current fence or not at
// all; a reservation takes room from its first moment on, whoever leads, and
// gives it back under the fence too.
func TestReservationFenced(t *testing.T) {
	p := newPlane(t, Config{Tick: time.Hour})
	old := p.lead()
	p.agent("a", 2)
	p.submit(3, nil)
	reserved := func() int {
		return one[int](p, `SELECT count(*) FROM forge.leases WHERE state = 'active' AND accepted_at IS NULL`)
	}
	require.Equal(t, 2, p.batch(old))
	require.Equal(t, 2, reserved())

	g := p.lead()
	require.Zero(t, p.batch(g), "the old epoch's reservations hold the agent")
	p.end(p.leaseOf("job-0"))
	_, err := p.maintain(t.Context(), old)
	require.ErrorIs(t, err, cluster.ErrFenced)
	require.Equal(t, 2, reserved(), "an old epoch frees nothing")
	require.EqualValues(t, 1, p.upkeepNow(g).expired.leases)
	p.exec(`UPDATE forge.agents SET unaccepted = 0`) // it is trusted with more than one again
	_, err = p.LeaseBatch(t.Context(), old)
	require.ErrorIs(t, err, cluster.ErrFenced)
	require.Equal(t, 1, reserved(), "nor does it reserve what is free")
	require.Equal(t, 1, p.batch(g))
	require.Equal(t, []string{epoch(old), epoch(g)}, all[string](p, `SELECT epoch::text FROM forge.leases WHERE state = 'active' ORDER BY epoch`))

	_, err = p.super.Exec(t.Context(), `INSERT INTO forge.leases (job_id, attempt, agent_id, epoch, generation, expires_at)
		SELECT id, 9, 'a', 1, 1, coordination.clock() FROM forge.jobs WHERE state = 'queued'`)
	require.ErrorContains(t, err, "outside a fence")
}
