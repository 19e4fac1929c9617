// Damage to files at rest: one bit, or the end.

package disk

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Flip changes one bit anywhere and says which.
func Flip(b []byte, rng *rand.Rand) (damaged []byte, what string) {
	at, bit := rng.IntN(len(b)), rng.IntN(8)
	damaged = slices.Clone(b)
	damaged[at] ^= 1 << bit
	return damaged, fmt.Sprintf("bit %d of byte %d of %d flipped", bit, at, len(b))
}

// Shorten cuts the end off: the n-th of so many lengths, which go from nothing to all but one byte.
func Shorten(b []byte, n, lengths int) (damaged []byte, what string) {
	length := 0
	if lengths > 1 {
		length = (len(b) - 1) * n / (lengths - 1)
	}
	return slices.Clone(b[:length]), fmt.Sprintf("cut to %d of %d bytes", length, len(b))
}
