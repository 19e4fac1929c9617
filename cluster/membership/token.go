// Join tokens: 256 random bits that are printed once; only their SHA-256 is kept (§61).

package membership

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
)

// Bounds of a token's life.
const (
	DefaultTokenTTL = 15 * time.Minute
	MaxTokenTTL     = 24 * time.Hour
)

const tokenPrefix = "fyj_" // so that scanners of repositories and logs recognise a leaked one

// Token is a join token in its text form. It is a secret until it is redeemed.
type Token string

// newToken draws 256 bits; the system's source never fails.
func newToken() Token {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	return Token(tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:]))
}

// Check reports ErrToken when the text is no join token.
func (t Token) Check() error {
	_, err := t.hash()
	return err
}

// hash is what is stored of the token. ErrToken when the text is none.
func (t Token) hash() ([sha256.Size]byte, error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(t)), tokenPrefix)
	secret, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(secret) != 32 || len(text) != base64.RawURLEncoding.EncodedLen(32) { // it passes over line ends
		return [sha256.Size]byte{}, ErrToken.Wrap(nil, "the text is not a join token")
	}
	return sha256.Sum256(secret), nil
}

// String hides the secret from logs.
func (t Token) String() string { return tokenPrefix + "…" }
