// Codec: Raft's messages as bytes. The first byte tells the message; every count is checked before it is used.

package rafttransport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// message numbers the requests on the wire: never reuse one.
type message byte

const (
	msgAppend     message = 1
	msgVote       message = 2
	msgPreVote    message = 3
	msgTimeoutNow message = 4
	msgSnapshot   message = 5
)

// The first byte of an answer.
const (
	answerOK    byte = 0
	answerError byte = 1 // the text of raft's error follows
)

// Bounds of a message.
const (
	maxEntries = 1024    // the library's own maximum of MaxAppendEntries
	maxID      = 64      // bytes of a server id or address
	maxBlob    = 1 << 20 // bytes of an encoded peer set
)

var errMalformed = errors.New("malformed raft message")

// writer appends; it cannot fail.
type writer struct{ b []byte }

func (w *writer) byte(v byte)    { w.b = append(w.b, v) }
func (w *writer) uint(v uint64)  { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) bytes(v []byte) { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) bool(v bool)    { w.byte(map[bool]byte{true: 1}[v]) }
func (w *writer) header(h raft.RPCHeader) {
	w.uint(uint64(h.ProtocolVersion))
	w.bytes(h.ID)
	w.bytes(h.Addr)
}

// reader consumes; after the first error it yields zero values.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errMalformed, what)
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("it ends early")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes returns a part of the frame; the frame is the message's own and is not reused.
func (r *reader) bytes(most int) []byte {
	n := r.uint()
	if n > uint64(most) || n > uint64(len(r.b)) {
		r.fail("bad length")
		return nil
	}
	if n == 0 {
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail("bad truth value")
	}
	return v == 1
}

func (r *reader) header() raft.RPCHeader {
	v := r.uint()
	if v > uint64(raft.ProtocolVersionMax) {
		r.fail("raft protocol version")
	}
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(v), ID: r.bytes(maxID), Addr: r.bytes(maxID)}
}

// end reports the first error; bytes left over are one.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("bytes left over")
	}
	return r.err
}

func encodeAppend(q *raft.AppendEntriesRequest) []byte {
	size := 128
	for _, l := range q.Entries {
		size += 48 + len(l.Data) + len(l.Extensions)
	}
	w := &writer{b: make([]byte, 0, size)}
	w.byte(byte(msgAppend))
	w.header(q.RPCHeader)
	w.uint(q.Term)
	w.uint(q.PrevLogEntry)
	w.uint(q.PrevLogTerm)
	w.uint(q.LeaderCommitIndex)
	w.uint(uint64(len(q.Entries)))
	for _, l := range q.Entries {
		w.uint(l.Index)
		w.uint(l.Term)
		w.byte(byte(l.Type))
		w.bytes(l.Data)
		w.bytes(l.Extensions)
		var at int64
		if !l.AppendedAt.IsZero() {
			at = l.AppendedAt.UnixNano()
		}
		w.b = binary.AppendVarint(w.b, at)
	}
	return w.b
}

func decodeAppend(r *reader) (*raft.AppendEntriesRequest, error) {
	q := &raft.AppendEntriesRequest{
		RPCHeader: r.header(), Term: r.uint(),
		PrevLogEntry: r.uint(), PrevLogTerm: r.uint(), LeaderCommitIndex: r.uint(),
	}
	n := r.uint()
	// An entry takes at least six bytes, so the count cannot claim more than the frame holds.
	if n > maxEntries || n > uint64(len(r.b)/6) {
		r.fail("bad number of entries")
		return nil, r.err
	}
	if n > 0 {
		q.Entries = make([]*raft.Log, 0, n)
	}
	for range n {
		l := &raft.Log{Index: r.uint(), Term: r.uint(), Type: raft.LogType(r.byte()), Data: r.bytes(len(r.b)), Extensions: r.bytes(len(r.b))}
		if l.Type > raft.LogConfiguration {
			r.fail("unknown type of entry") // raft would panic when it applies one
		}
		if l.Type == raft.LogConfiguration && !readable(l.Data) {
			r.fail("unreadable configuration")
		}
		at, size := binary.Varint(r.b)
		if size <= 0 {
			r.fail("bad time")
			return nil, r.err
		}
		r.b = r.b[size:]
		if at != 0 {
			l.AppendedAt = time.Unix(0, at)
		}
		q.Entries = append(q.Entries, l)
	}
	return q, r.end()
}

func encodeVote(q *raft.RequestVoteRequest) []byte {
	w := &writer{}
	w.byte(byte(msgVote))
	w.header(q.RPCHeader)
	w.uint(q.Term)
	w.uint(q.LastLogIndex)
	w.uint(q.LastLogTerm)
	w.bool(q.LeadershipTransfer)
	return w.b
}

func decodeVote(r *reader) (*raft.RequestVoteRequest, error) {
	q := &raft.RequestVoteRequest{
		RPCHeader: r.header(), Term: r.uint(),
		LastLogIndex: r.uint(), LastLogTerm: r.uint(), LeadershipTransfer: r.bool(),
	}
	return q, r.end()
}

func encodePreVote(q *raft.RequestPreVoteRequest) []byte {
	w := &writer{}
	w.byte(byte(msgPreVote))
	w.header(q.RPCHeader)
	w.uint(q.Term)
	w.uint(q.LastLogIndex)
	w.uint(q.LastLogTerm)
	return w.b
}

func decodePreVote(r *reader) (*raft.RequestPreVoteRequest, error) {
	q := &raft.RequestPreVoteRequest{RPCHeader: r.header(), Term: r.uint(), LastLogIndex: r.uint(), LastLogTerm: r.uint()}
	return q, r.end()
}

func encodeTimeoutNow(q *raft.TimeoutNowRequest) []byte {
	w := &writer{}
	w.byte(byte(msgTimeoutNow))
	w.header(q.RPCHeader)
	return w.b
}

func decodeTimeoutNow(r *reader) (*raft.TimeoutNowRequest, error) {
	q := &raft.TimeoutNowRequest{RPCHeader: r.header()}
	return q, r.end()
}

func encodeSnapshot(q *raft.InstallSnapshotRequest) []byte {
	w := &writer{}
	w.byte(byte(msgSnapshot))
	w.header(q.RPCHeader)
	w.uint(uint64(q.SnapshotVersion))
	w.uint(q.Term)
	w.uint(q.LastLogIndex)
	w.uint(q.LastLogTerm)
	w.bytes(q.Peers)
	w.bytes(q.Configuration)
	w.uint(q.ConfigurationIndex)
	w.uint(uint64(q.Size))
	return w.b
}

func decodeSnapshot(r *reader) (*raft.InstallSnapshotRequest, error) {
	q := &raft.InstallSnapshotRequest{
		RPCHeader: r.header(), SnapshotVersion: raft.SnapshotVersion(r.uint()), Term: r.uint(),
		LastLogIndex: r.uint(), LastLogTerm: r.uint(), Peers: r.bytes(maxBlob), Configuration: r.bytes(maxBlob),
		ConfigurationIndex: r.uint(), Size: int64(r.uint()),
	}
	if q.Size < 0 {
		r.fail("negative size")
	}
	if q.SnapshotVersion > 0 && !readable(q.Configuration) {
		r.fail("unreadable configuration")
	}
	return q, r.end()
}

// readable reports whether raft can read an encoded configuration. On one that
// it cannot it panics, on a goroutine of its own: the peer would end this process.
func readable(configuration []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	raft.DecodeConfiguration(configuration)
	return true
}

// decodeRequest reads any request. The error matches errMalformed.
func decodeRequest(b []byte) (raft.WithRPCHeader, error) {
	r := &reader{b: b}
	switch m := message(r.byte()); m {
	case msgAppend:
		return result(decodeAppend(r))
	case msgVote:
		return result(decodeVote(r))
	case msgPreVote:
		return result(decodePreVote(r))
	case msgTimeoutNow:
		return result(decodeTimeoutNow(r))
	case msgSnapshot:
		return result(decodeSnapshot(r))
	default:
		return nil, fmt.Errorf("%w: unknown message %d", errMalformed, m)
	}
}

func result[T raft.WithRPCHeader](q T, err error) (raft.WithRPCHeader, error) {
	if err != nil {
		return nil, err
	}
	return q, nil
}

// isHeartbeat recognises the appends that only tell "I lead": the library sends
// them with nothing but a term and an address.
func isHeartbeat(q *raft.AppendEntriesRequest) bool {
	return q.Term != 0 && q.PrevLogEntry == 0 && q.PrevLogTerm == 0 && len(q.Entries) == 0 && q.LeaderCommitIndex == 0
}
