// Key files that changed at rest: the key is the same, or none of what it signed or would sign opens anything.

package token

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/testkit/disk"
)

func TestDamagedFiles(t *testing.T) {
	const flips, cuts = 100, 50
	r := newRig(t)
	id := r.signer.KeyID()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{PublicFile, PrivateFile} {
		path := filepath.Join(r.dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		refused, useless, same := 0, 0, 0
		for n := range flips + cuts {
			bad, how := disk.Flip(whole, rng)
			if n >= flips {
				bad, how = disk.Shorten(whole, n-flips, cuts)
			}
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			r.clock = r.clock.Add(2 * rereadTime)
			signer := r.signer
			if name == PrivateFile {
				if signer, err = ReadSigner(path); err != nil {
					refused++
					continue
				}
			}
			text, err := signer.Sign(r.claims())
			require.NoError(t, err)
			if _, err := r.verifier.Verify(text); err != nil {
				var fault *access.Fault
				require.ErrorAs(t, err, &fault, "%s: %s", name, how)
				require.NotEmpty(t, fault.Code)
				useless++
				continue
			}
			require.Equal(t, id, signer.KeyID(), "%s: %s", name, how)
			_, known := r.keys.Find(id)
			require.True(t, known && r.keys.Count() == 1, "%s: %s", name, how)
			same++
		}
		t.Logf("%-9s %d refused, %d open nothing, %d the same key as before", name, refused, useless, same)
		require.Less(t, same, cuts/2)
		require.NoError(t, os.WriteFile(path, whole, 0o600))
		r.clock = r.clock.Add(2 * time.Second)
	}
}
