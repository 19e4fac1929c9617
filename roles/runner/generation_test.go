// What an agent accepted under an older generation, once a new one gives orders.

package runner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestOlderGenerationIsNotStarted: a lease that was accepted before a disaster
// recovery is not started after it, though leave to start it was on its way; under
// an order of the new generation it is.
func TestOlderGenerationIsNotStarted(t *testing.T) {
	ex := newGate()
	l, _, _ := script(t, t.TempDir(), ex, runner.Welcome{})
	offer := func(lease string, generation int) runner.Verdict {
		say(t, l, runner.Message{Offer: order(lease, generation, 1)})
		return hear(t, l, answerTo(lease)).Verdict
	}
	require.Equal(t, runner.Accepted, offer("before", 1))
	require.Equal(t, runner.Accepted, offer("after", 2))
	say(t, l, runner.Message{Start: &runner.Start{Lease: "before", Granted: true}})
	say(t, l, runner.Message{Start: &runner.Start{Lease: "after", Granted: true}})
	require.Eventually(t, func() bool { return ex.starts("after") == 1 }, soon, time.Millisecond)
	require.Zero(t, ex.starts("before"))
	require.Equal(t, runner.Accepted, offer("before", 2), "it holds no slot, and was never started")
	say(t, l, runner.Message{Start: &runner.Start{Lease: "before", Granted: true}})
	require.Eventually(t, func() bool { return ex.starts("before") == 1 }, soon, time.Millisecond)
}
