// The end of a process: in order, or at least in time.

package watchdog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What heeds no deadline, as a write to a file system that hangs, does not keep the process.
func TestProcessEndsInTime(t *testing.T) {
	const bound = 20 * time.Second
	for name, c := range map[string]struct {
		runs, takes time.Duration // before it is told, and after
		ends        int
	}{
		"in order":            {time.Hour, bound - time.Second, 0},
		"hangs":               {time.Hour, time.Hour, 1},
		"ends by itself":      {time.Hour, -1, 0},
		"told before it runs": {0, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told, tell := context.WithCancel(t.Context())
				defer tell()
				began, ends := time.Now(), 0
				w := Arm(told, bound, func(code int, reason string) {
					ends++
					require.Equal(t, ExitStuck, code)
					require.Contains(t, reason, ErrStuck.Code)
					require.Contains(t, reason, "end of the content store")
					require.Equal(t, c.runs+bound, time.Since(began))
				})
				w.Enter("start of roles")
				<-time.After(c.runs)
				w.Enter("end of the content store")
				if c.takes >= 0 {
					tell()
					<-time.After(c.takes)
				}
				w.Disarm()
				tell()
				<-time.After(time.Hour)
				synctest.Wait()
				require.Equal(t, c.ends, ends)
			})
		})
	}
}
