// The end of a daemon: in order, or at least in time.

package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What heeds no deadline, as a write to a file system that hangs, does not keep the process.
func TestStopThatHangsEndsTheProcess(t *testing.T) {
	failed := errors.New("one part failed")
	for name, c := range map[string]struct {
		takes time.Duration // of which it heeds nothing
		ends  int
	}{
		"in order": {stopBound - time.Second, 0},
		"late":     {stopBound + stopGrace - time.Second, 0},
		"hangs":    {time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ends := time.Now(), 0
				signalled, cancel := context.WithCancel(t.Context())
				cancel() // as by the signal
				err := stopInTime(signalled, func(ctx context.Context) error {
					require.NoError(t, ctx.Err())
					<-time.After(c.takes)
					require.Equal(t, c.takes > stopBound, ctx.Err() != nil)
					return failed
				}, func(code int, reason string) {
					ends++
					require.Equal(t, exitStuck, code)
					require.Contains(t, reason, errStuck.Code)
					require.Equal(t, stopBound+stopGrace, time.Since(began))
				})
				require.ErrorIs(t, err, failed)
				require.Equal(t, c.ends, ends)
			})
		})
	}
}
