// The pace of a log stream, in virtual time.

package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPacer: what an honest agent sends is never held up, a flood of small chunks comes down to its pace.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := newPacer(), time.Now()
		for range 1000 { // a backlog
			require.NoError(t, p.wait(t.Context(), MaxData))
		}
		require.NoError(t, p.wait(t.Context(), 1), "its last bytes")
		require.Zero(t, time.Since(began))
		for range 1000 { // a job that prints a little all the time
			require.NoError(t, pause(t.Context(), logEvery))
			before := time.Now()
			require.NoError(t, p.wait(t.Context(), 1))
			require.Zero(t, time.Since(before))
		}
		require.NoError(t, pause(t.Context(), smallEvery))
		before := time.Now()
		for range 1000 {
			require.NoError(t, p.wait(t.Context(), 1))
		}
		require.Equal(t, (1000-smallBurst)*smallEvery, time.Since(before))

		ctx, cancel := context.WithTimeout(t.Context(), smallEvery/2)
		defer cancel()
		require.ErrorIs(t, p.wait(ctx, 1), context.DeadlineExceeded)
	})
}
