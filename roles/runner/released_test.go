// A lease that its agent gave up, and that nobody has ended yet.

package runner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestReleasedIsNotOfferedAgain: a lease that its agent gave up is active until a
// scheduler ends it. The agent does not know it any more when it links again, and
// must not be offered it: its attempt has been started once.
func TestReleasedIsNotOfferedAgain(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	first := p.speak("a", "d1")
	lost, given := p.lease("a", nil), p.lease("a", nil)
	require.True(t, first.accept(lost)) // whose Start the agent never heard
	require.True(t, first.accept(given))
	first.say(runner.Message{Release: &runner.Release{Lease: given, Reason: "its time is over", Started: true}})
	require.True(t, completed(first, given))
	require.False(t, first.answer(given), "a stale offer is not granted")
	require.NoError(t, first.Close())

	second := p.speak("a", "d1")
	offered := await(second, func(m runner.Message) *runner.Offer { return m.Offer })
	require.Equal(t, lost, offered.Lease)
	require.Equal(t, "delivered", one[string](p, `SELECT d.state FROM forge.dispatch d WHERE d.lease_id = '`+given+`'`))
	require.Equal(t, "active", one[string](p, `SELECT state FROM forge.leases WHERE id = '`+given+`'`))
}
