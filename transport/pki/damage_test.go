// Certificates, keys and authorities that changed on the disk: refused by their owner or by everybody else, never another identity.

package pki_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/disk"
	"github.com/forgeyard/forgeyard/transport/pki"
)

func TestDamagedFiles(t *testing.T) {
	const flips, cuts = 100, 50
	a := authority(t, filepath.Join(t.TempDir(), "ca"))
	subject := pki.Node(a.Cluster(), nodeID())
	mine, peer := issue(t, a, subject), issue(t, a, pki.Node(a.Cluster(), nodeID()))
	other, err := peer.Identity(a) // how a sound peer sees this one
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"cert", "key", "ca"} {
		whole := map[string][]byte{"cert": mine.CertPEM, "key": mine.KeyPEM, "ca": a.CertPEM()}
		dir := t.TempDir()
		path := func(name string) string { return filepath.Join(dir, name) }
		for n, b := range whole {
			require.NoError(t, os.WriteFile(path(n), b, 0o600))
		}
		refused, useless, same := 0, 0, 0
		for n := range flips + cuts {
			var bad []byte
			var how string
			if n < flips {
				bad, how = disk.Flip(whole[name], rng)
			} else {
				bad, how = disk.Shorten(whole[name], n-flips, cuts)
			}
			require.NoError(t, os.WriteFile(path(name), bad, 0o600))
			id, err := pki.Load(path("cert"), path("key"), path("ca"))
			if err != nil {
				var typed *pki.Error
				require.ErrorAs(t, err, &typed, "%s: %s", name, how)
				require.NotEmpty(t, typed.Code)
				refused++
				continue
			}
			_, seen := other.Verify([]*x509.Certificate{id.Leaf()}, expect(pki.KindNode, pki.AsServer))
			_, sees := id.Verify([]*x509.Certificate{peer.Certificate}, expect(pki.KindNode, pki.AsServer))
			if seen != nil || sees != nil {
				useless++ // no connection comes about
				continue
			}
			require.True(t, bytes.Equal(mine.Certificate.Raw, id.Leaf().Raw), "%s: %s", name, how)
			require.Equal(t, mine.Certificate.PublicKey.(ed25519.PublicKey), id.Leaf().PublicKey)
			require.Equal(t, subject, id.Subject())
			same++
		}
		t.Logf("%-4s %d refused at the start, %d by every peer, %d the same as before", name, refused, useless, same)
		require.Equal(t, flips+cuts, refused+useless+same)
		require.Greater(t, refused, cuts/2)
	}
}
