// Files of the artifact store that changed at rest: never read as what they were, never another cluster's, and left as they are.

package artifact

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

func TestDamagedFiles(t *testing.T) {
	const flips, cuts = 100, 50
	r := newFileRig(t)
	b := content(1, 1000)
	d := put(t, r, b)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, class := range []struct {
		name, path string
		read       func() error
		want       *cluster.Error
	}{
		{"blob", files(r).path(d), func() error {
			got, err := ReadAll(t.Context(), r, d, 1000)
			if err == nil {
				require.Equal(t, b, got)
			}
			return err
		}, ErrCorrupt},
		{"marker", filepath.Join(files(r).dir, markerName), func() error {
			s, err := Open(t.Context(), r.url, r.own, Options{})
			if err == nil {
				require.NoError(t, s.Close())
			}
			return err
		}, ErrOtherCluster},
	} {
		whole, err := os.ReadFile(class.path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(class.path, 0o600))
		refused := 0
		for n := range flips + cuts {
			bad, how := disk.Flip(whole, rng)
			if n >= flips {
				bad, how = disk.Shorten(whole, n-flips, cuts)
			}
			require.NoError(t, os.WriteFile(class.path, bad, 0o600))
			if err := class.read(); err != nil {
				require.ErrorIs(t, err, class.want, "%s: %s", class.name, how)
				refused++
			}
			now, err := os.ReadFile(class.path)
			require.NoError(t, err)
			require.Equal(t, bad, now, "%s: %s", class.name, how)
		}
		t.Logf("%-6s %d of %d refused", class.name, refused, flips+cuts)
		require.GreaterOrEqual(t, refused, flips+cuts-5, "only white space behind the marker says nothing")
		require.NoError(t, os.WriteFile(class.path, whole, 0o600))
		require.NoError(t, class.read())
	}
}
