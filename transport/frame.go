// Frames: family, version, length, payload. The length is checked before anything is allocated (§219).

package transport

import (
	"encoding/binary"
	"errors"
	"io"
)

// headerSize is the size of a frame's header: family, version, 32-bit length.
const headerSize = 6

// growStep is how much memory a frame's claimed length alone can make this side allocate.
const growStep = 64 << 10

// appendFrame appends a frame to dst.
func appendFrame(dst []byte, fam Family, payload []byte) ([]byte, error) {
	if len(payload) > fam.MaxFrame() {
		return dst, Refuse(CodeTooLarge, "%d bytes on family %s, at most %d", len(payload), fam, fam.MaxFrame())
	}
	dst = append(dst, byte(fam), familyVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...), nil
}

// readHeader reads a frame's header and checks it. A stream that ends before
// the first byte gives io.EOF.
func readHeader(r io.Reader) (Family, int, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, 0, Refuse(CodeMalformed, "the stream ended inside a frame header")
		}
		return 0, 0, err
	}
	fam := Family(h[0])
	rule, ok := fam.rule()
	if !ok {
		return fam, 0, Refuse(CodeUnknownFamily, "family %d", h[0])
	}
	if h[1] != familyVersion {
		return fam, 0, Refuse(CodeVersion, "family %s version %d; this build speaks version %d", fam, h[1], familyVersion)
	}
	n := binary.BigEndian.Uint32(h[2:])
	if uint64(n) > uint64(rule.maxFrame) {
		return fam, 0, Refuse(CodeTooLarge, "%d bytes on family %s, at most %d", n, fam, rule.maxFrame)
	}
	return fam, int(n), nil
}

// readFrame reads one frame that must be of the family and hold at most so many bytes.
func readFrame(r io.Reader, want Family, most int) ([]byte, error) {
	fam, n, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	if fam != want {
		return nil, Refuse(CodeWrongFamily, "a frame of family %s on a stream of family %s", fam, want)
	}
	if n > most {
		return nil, Refuse(CodeTooLarge, "%d bytes, at most %d here", n, most)
	}
	return readPayload(r, n)
}

// readPayload reads n bytes. Memory follows the bytes that really arrive, so a
// length alone costs this side at most growStep.
func readPayload(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, 0, min(n, growStep))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(n, 4*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		part := buf[len(buf):cap(buf)]
		if _, err := io.ReadFull(r, part); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, Refuse(CodeMalformed, "the stream ended after %d of %d bytes of a frame", len(buf), n)
			}
			return nil, err
		}
		buf = buf[:len(buf)+len(part)]
	}
	return buf, nil
}
