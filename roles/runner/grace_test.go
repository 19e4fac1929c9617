// What a task that ignores SIGTERM may not reach into.

package runner

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// firstWrite closes up at the first output.
type firstWrite struct {
	once sync.Once
	up   chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.up) })
	return len(p), nil
}

// TestNoGraceWithoutALease: a task that ignores SIGTERM must not reach into the
// time of the next attempt.
func TestNoGraceWithoutALease(t *testing.T) {
	for _, why := range []error{errDeadline, errDropped} {
		ctx, cancel := context.WithCancelCause(t.Context())
		out := &firstWrite{up: make(chan struct{})}
		ended := make(chan Exit, 1)
		go func() {
			ended <- Process{Supervisor: []string{os.Args[0], "supervise"}, Grace: time.Hour}.Run(ctx, Task{
				Steps: []Step{{Argv: []string{"sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"}}}, Dir: t.TempDir(),
			}, out)
		}()
		<-out.up
		cancel(errors.Join(why))
		require.Equal(t, "killed", (<-ended).Signal, why)
	}
}
