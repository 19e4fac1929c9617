// Keys: a signing key stays with its operator; its public half, a .pub file, is all that daemons hold.

package token

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/golang-jwt/jwt/v5"
)

// Names of the files that Generate writes; daemons read the files of a directory that end in PublicSuffix.
const (
	PrivateFile  = "token.key"
	PublicFile   = "token.pub"
	PublicSuffix = ".pub"

	maxKeyFile = 4096 // bytes
)

// KeyID is a key's thumbprint (RFC 7638): base64url of the SHA-256 of its canonical JWK. A token's kid names it.
func KeyID(pub ed25519.PublicKey) string {
	x := base64.RawURLEncoding.EncodeToString(pub)
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + x + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Generate makes a key pair and writes token.key (0600) and token.pub (0644)
// into dir (0700 when it is made). It refuses to replace either file.
func Generate(dir string) (id string, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("signing key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("signing key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("signing key: %w", err)
	}
	for _, name := range []string{PrivateFile, PublicFile} { // before anything is written
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return "", fmt.Errorf("signing key: %s: %w and is not replaced", filepath.Join(dir, name), os.ErrExist)
		}
	}
	err = writeNew(filepath.Join(dir, PrivateFile), 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: private})
	if err == nil {
		err = writeNew(filepath.Join(dir, PublicFile), 0o644, &pem.Block{Type: "PUBLIC KEY", Bytes: public})
	}
	return KeyID(pub), err
}

func writeNew(path string, mode os.FileMode, block *pem.Block) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("signing key: %w", err)
	}
	if err := errors.Join(pem.Encode(f, block), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("signing key: %w", err)
	}
	return nil
}

// Signer is a private key in the hands of its operator.
type Signer struct{ key ed25519.PrivateKey }

// ReadSigner reads a private key. A file that others may read is refused.
func ReadSigner(path string) (Signer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Signer{}, fmt.Errorf("signing key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Signer{}, fmt.Errorf("signing key: others may read %s; chmod 600 it", path)
	}
	block, err := readBlock(path, "PRIVATE KEY")
	if err != nil {
		return Signer{}, err
	}
	k, err := x509.ParsePKCS8PrivateKey(block)
	if key, ok := k.(ed25519.PrivateKey); err == nil && ok {
		return Signer{key}, nil
	}
	return Signer{}, fmt.Errorf("signing key: %s holds no Ed25519 private key", path)
}

// KeyID is the id of the public half.
func (s Signer) KeyID() string { return KeyID(s.key.Public().(ed25519.PublicKey)) }

// Sign makes the token of a grant.
func (s Signer) Sign(c Claims) (string, error) {
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	t.Header["kid"] = s.KeyID()
	text, err := t.SignedString(s.key)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return text, nil
}

// readPublic reads a public key. A private key in its place is refused: it must not lie on a daemon.
func readPublic(path string) (ed25519.PublicKey, error) {
	block, err := readBlock(path, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	k, err := x509.ParsePKIXPublicKey(block)
	if key, ok := k.(ed25519.PublicKey); err == nil && ok {
		return key, nil
	}
	return nil, fmt.Errorf("token key: %s holds no Ed25519 public key", path)
}

// readBlock reads the only PEM block of a small file.
func readBlock(path, kind string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("token key: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("token key: %w", err)
	}
	block, rest := pem.Decode(text)
	if len(text) > maxKeyFile || block == nil || block.Type != kind || len(rest) > 0 {
		return nil, fmt.Errorf("token key: %s is not one PEM block %q", path, kind)
	}
	return block.Bytes, nil
}
