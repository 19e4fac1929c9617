// Package seal puts a checksum behind the one line of a small file, so that a file that changed at rest is not taken for
// what was written.
package seal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrBroken is answered for a file whose checksum does not belong to its line.
var ErrBroken = errors.New("checksum mismatch")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of b: it finds every change within 32 bits.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Add returns the content of a file that holds this line, which has no line end.
func Add(line []byte) []byte { return fmt.Appendf(nil, "%s\n%08x\n", line, Sum(line)) }

// Open returns the line of a file. Not sealed, with all that the file holds, is
// one without a second line: an earlier build wrote it. Its reader decides; a
// sealed file that was cut to such a one says the same as before.
func Open(content []byte) (line []byte, sealed bool, err error) {
	line, rest, _ := bytes.Cut(content, []byte{'\n'})
	if len(rest) == 0 {
		return line, false, nil
	}
	if !bytes.Equal(content, Add(line)) {
		return nil, true, ErrBroken
	}
	return line, true, nil
}
