// Fuzzing of tokens and key files: nothing opens anything but the exact text that was signed.

package token

import (
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzVerify(f *testing.F) {
	r := newRig(f)
	good, err := r.signer.Sign(r.claims())
	require.NoError(f, err)
	part := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for name, s := range map[string]string{
		"good": good, "no signature": part[0] + "." + part[1] + ".", "alg none": none + "." + part[1] + ".", "two parts": part[0] + "." + part[1], "nothing": "", "dots": "...",
		"padded": good + "=", "a line's end": good + "\n", "no base64": "%.%.%", "claims of no object": part[0] + ".W10." + part[2], "large": strings.Repeat("a", MaxSize+1),
		"last bits": good[:len(good)-1] + string(good[len(good)-1]+1), "a header of lists": base64.RawURLEncoding.EncodeToString([]byte(`{"alg":["EdDSA"],"kid":7}`)) + "." + part[1] + "." + part[2],
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		caller, err := r.verifier.Verify(text)
		if err == nil {
			require.Equal(t, good, text, "a token that nobody signed")
			return
		}
		var fault *access.Fault
		require.ErrorAs(t, err, &fault)
		require.Equal(t, 401, fault.Status)
		require.Zero(t, caller)
		if len(text) > 40 {
			require.NotContains(t, err.Error(), text, "a refusal shows no token")
		}
	})
}

func FuzzReadPublic(f *testing.F) {
	dir := f.TempDir()
	_, err := Generate(dir)
	require.NoError(f, err)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
		return string(b)
	}
	public, private := read(PublicFile), read(PrivateFile)
	for name, s := range map[string]string{
		"public": public, "private": private, "private called public": strings.ReplaceAll(private, "PRIVATE", "PUBLIC"), "two": public + public, "cut": public[:len(public)/2],
		"nothing": "", "text before": "# a key\n" + public, "large": public + strings.Repeat("\n", maxKeyFile),
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path := filepath.Join(t.TempDir(), PublicFile)
		require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
		if key, err := readPublic(path); err == nil {
			require.Len(t, key, ed25519.PublicKeySize)
			require.NotContains(t, s, "PRIVATE KEY", "a private key lies on a daemon")
		}
		if signer, err := ReadSigner(path); err == nil {
			_, err = readPublic(path)
			require.Error(t, err)
			require.NotEmpty(t, signer.KeyID())
		}
	})
}
