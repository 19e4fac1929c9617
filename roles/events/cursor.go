// Cursor: a reader's place in the outbox, opaque to clients.

package events

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Cursor names the last event that a reader has seen. It belongs to one history
// of the database: after a restore or a promotion transaction numbers mean
// something else, and a cursor from before is answered with a resync.
type Cursor struct {
	System   int64 // the server's system identifier
	Timeline int32
	XID      uint64
	Seq      int64
}

const cursorVersion, cursorSize = 1, 1 + 8 + 4 + 8 + 8

// ErrCursor is a cursor that no daemon of any fleet has made.
var ErrCursor = errors.New("the cursor is malformed")

// String is the form that clients keep: letters, digits, '-' and '_'.
func (c Cursor) String() string {
	b := make([]byte, 0, cursorSize)
	b = append(b, cursorVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(c.System))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Timeline))
	b = binary.BigEndian.AppendUint64(b, c.XID)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Seq))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads what String wrote; ErrCursor otherwise.
func ParseCursor(s string) (Cursor, error) {
	if len(s) != base64.RawURLEncoding.EncodedLen(cursorSize) {
		return Cursor{}, fmt.Errorf("%w: %d characters", ErrCursor, len(s))
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != cursorVersion { // the decoder passes over line ends
		return Cursor{}, ErrCursor
	}
	c := Cursor{
		System: int64(binary.BigEndian.Uint64(b[1:])), Timeline: int32(binary.BigEndian.Uint32(b[9:])),
		XID: binary.BigEndian.Uint64(b[13:]), Seq: int64(binary.BigEndian.Uint64(b[21:])),
	}
	if c.XID > math.MaxInt64 || c.Seq < 0 {
		return Cursor{}, ErrCursor
	}
	return c, nil
}

// before reports whether c lies before o in the same history.
func (c Cursor) before(o Cursor) bool {
	return c.XID < o.XID || c.XID == o.XID && c.Seq < o.Seq
}

// follows reports whether o is of the same history of the database.
func (c Cursor) follows(o Cursor) bool { return c.System == o.System && c.Timeline == o.Timeline }
