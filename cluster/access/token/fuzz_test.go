// Fuzzing of tokens and key files: nothing opens anything but the exact text that was signed.

package token

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
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

// A signing key: what is read signs what its public half verifies, and a file that others may read is refused unread.
func FuzzReadSigner(f *testing.F) {
	dir := f.TempDir()
	_, err := Generate(dir)
	require.NoError(f, err)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
		return string(b)
	}
	pkcs8 := func(key any, err error) string {
		require.NoError(f, err)
		b, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(f, err)
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
	}
	private := read(PrivateFile)
	for name, s := range map[string]string{
		"private": private, "public": read(PublicFile), "public called private": strings.ReplaceAll(read(PublicFile), "PUBLIC", "PRIVATE"), "two": private + private, "cut": private[:len(private)/2],
		"another curve": pkcs8(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), "X25519": pkcs8(ecdh.X25519().GenerateKey(rand.Reader)),
		"nothing": "", "a header": strings.Replace(private, "\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1), "large": private + strings.Repeat("\n", maxKeyFile),
		"a seed too short": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("\x30\x0f\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x03\x04\x01\x01")})),
	} {
		corpus.Add(f, name, s, false)
	}
	corpus.Add(f, "open to others", private, true)
	r := newRig(f)
	f.Fuzz(func(t *testing.T, s string, open bool) {
		path := filepath.Join(t.TempDir(), PrivateFile)
		require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
		if open {
			require.NoError(t, os.Chmod(path, 0o640))
		}
		signer, err := ReadSigner(path)
		if err != nil {
			require.Zero(t, signer)
			if len(s) > 80 {
				require.NotContains(t, err.Error(), s[40:80], "a refusal shows no key")
			}
			return
		}
		require.False(t, open)
		require.LessOrEqual(t, len(s), maxKeyFile)
		text, err := signer.Sign(r.claims())
		require.NoError(t, err)
		public, err := x509.MarshalPKIXPublicKey(signer.key.Public())
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, PublicFile), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600))
		keys, err := OpenKeys([]string{dir}, r.now, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		caller, err := NewVerifier(r.cluster, keys, r.now).Verify(text)
		require.NoError(t, err)
		require.True(t, caller.May(access.RunSubmit))
	})
}
