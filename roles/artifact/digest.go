// Digests: the SHA-256 of a blob's bytes, which is its name.

package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest names a blob by the SHA-256 of its bytes. In a database it is a bytea of 32 bytes.
type Digest [sha256.Size]byte

const digestPrefix = "sha256:"

// DigestOf is the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the text form, "sha256:" and 64 lower-case hexadecimal digits.
func ParseDigest(s string) (Digest, error) {
	digits, ok := strings.CutPrefix(s, digestPrefix)
	if !ok {
		return Digest{}, fmt.Errorf("digest %.80q: expected %q first", s, digestPrefix)
	}
	return parseHex(digits)
}

func parseHex(s string) (d Digest, err error) {
	if len(s) != hex.EncodedLen(len(d)) || s != strings.ToLower(s) {
		return Digest{}, fmt.Errorf("digest %.80q: expected %d lower-case hexadecimal digits", s, hex.EncodedLen(len(d)))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("digest %.80q: %w", s, err)
	}
	return d, nil
}

// DigestFromBytes reads the database's form.
func DigestFromBytes(b []byte) (Digest, error) {
	if len(b) != sha256.Size {
		return Digest{}, fmt.Errorf("a digest has %d bytes, not %d", sha256.Size, len(b))
	}
	return Digest(b), nil
}

// String is the text form.
func (d Digest) String() string { return digestPrefix + d.hex() }

func (d Digest) hex() string { return hex.EncodeToString(d[:]) }

// Bytes is the database's form.
func (d Digest) Bytes() []byte { return d[:] }

// IsZero reports whether the digest names nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// Compare orders digests by their bytes, which is the order of the text form.
func (d Digest) Compare(other Digest) int { return bytes.Compare(d[:], other[:]) }

// MarshalText writes the text form.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the text form.
func (d *Digest) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDigest(string(b))
	return err
}
