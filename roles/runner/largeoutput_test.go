// Outputs that take a daemon long to store once it has all of their bytes, in virtual time.

package runner_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestLargeOutputHasTimeToBeStored: a daemon begins to store a large output only
// when it has all of it. One that takes longer than a small output is given, and
// no longer than this size is, gets it once; one that hangs is left all the same.
func TestLargeOutputHasTimeToBeStored(t *testing.T) {
	content := make([]byte, 16<<20) // does not shrink when it is packed
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	for name, c := range map[string]struct {
		slow []time.Duration
		puts int
	}{
		"slow store": {[]time.Duration{33 * time.Second}, 1},
		"hung store": {[]time.Duration{time.Hour}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarehouse()
				w.slow = c.slow
				o := order("l1", 1, 1)
				o.Outputs, o.Timeout = []runner.Output{{Name: "x", Path: "x"}}, time.Minute
				carried := carry(t, t.TempDir(), w, runner.ExecutorFunc(func(_ context.Context, tk runner.Task, _ io.Writer) runner.Exit {
					require.NoError(t, os.WriteFile(filepath.Join(tk.Dir, "x"), content, 0o600))
					return exit(0)
				}))
				carried.begin(o)
				for {
					m, err := carried.Receive(t.Context())
					require.NoError(t, err)
					if m.Complete != nil {
						require.Equal(t, runner.Succeeded, m.Complete.Outcome, m.Complete.Reason)
						break
					}
				}
				w.locked(func() { require.Equal(t, c.puts, w.puts) })
				carried.stop()
			})
		})
	}
}
