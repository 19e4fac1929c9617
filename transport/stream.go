// Stream: length-prefixed frames of one family over one QUIC stream.

package transport

import (
	"context"
	"io"
	"time"

	"github.com/quic-go/quic-go"
)

// Stream is a two-way sequence of frames. One reader and one writer may use it
// at the same time. After any error but io.EOF the only use left is Close.
type Stream struct {
	c   *conn
	qs  *quic.Stream
	fam Family
}

func newStream(c *conn, qs *quic.Stream, fam Family) *Stream { return &Stream{c: c, qs: qs, fam: fam} }

// Peer is who is at the other end.
func (s *Stream) Peer() Peer { return s.c.peer }

// Context ends when this side's direction ends: by Close, because the peer
// stopped listening, or because the connection ended.
func (s *Stream) Context() context.Context { return s.qs.Context() }

// SetPriority orders this stream's data among the connection's streams: 0 first, 7 last, 3 by default.
func (s *Stream) SetPriority(urgency int8) { s.qs.SetPriority(urgency, true) }

// ReadFrame reads one frame; io.EOF after the peer's last one. It is bounded by
// ctx and by the family's MaxFrame, and returns an *Error otherwise.
func (s *Stream) ReadFrame(ctx context.Context) ([]byte, error) {
	return s.readUpTo(ctx, s.fam.MaxFrame())
}

// readUpTo is ReadFrame with a bound of its own, in bytes.
func (s *Stream) readUpTo(ctx context.Context, most int) ([]byte, error) {
	var b []byte
	err := s.bounded(ctx, s.qs.SetReadDeadline, func() (err error) {
		b, err = readFrame(s.qs, s.fam, most)
		return err
	})
	return b, err
}

// WriteFrame writes one frame, bounded by ctx and by the family's MaxFrame.
func (s *Stream) WriteFrame(ctx context.Context, payload []byte) error {
	b, err := appendFrame(make([]byte, 0, headerSize+len(payload)), s.fam, payload)
	if err != nil {
		return err
	}
	return s.write(ctx, b)
}

func (s *Stream) write(ctx context.Context, b []byte) error {
	return s.bounded(ctx, s.qs.SetWriteDeadline, func() error {
		_, err := s.qs.Write(b)
		return err
	})
}

// bounded runs a blocking operation under a context: its deadline becomes the
// stream's, its cancellation expires that deadline.
func (s *Stream) bounded(ctx context.Context, setDeadline func(time.Time) error, op func() error) error {
	if err := ctx.Err(); err != nil {
		return classify(context.Cause(ctx))
	}
	deadline, _ := ctx.Deadline() // zero: none
	if err := setDeadline(deadline); err != nil {
		return classify(err)
	}
	if ctx.Done() != nil {
		expired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = setDeadline(time.Unix(1, 0)) // in the past; it cannot fail on an open stream
			close(expired)
		})
		defer func() {
			if !stop() {
				<-expired // or the late deadline would hit the next operation
			}
		}()
	}
	err := op()
	if err == io.EOF { //nolint:errorlint // the bare end of the stream
		return err
	}
	return classify(err)
}

// CloseWrite ends this side's direction after what was written; the peer reads io.EOF.
func (s *Stream) CloseWrite() error { return classify(s.qs.Close()) }

// Close ends both directions. What was written is still delivered. Either half
// left open would hold the stream's place in the peer's limit for ever.
func (s *Stream) Close() { s.end(CodeOK) }

func (s *Stream) end(code Code) {
	s.qs.CancelRead(quic.StreamErrorCode(code))
	_ = s.qs.Close() // fails only when the direction was cancelled, which ends it too
}

// cancel ends both directions at once, dropping what was not delivered; the peer learns the reason.
func (s *Stream) cancel(code Code) {
	s.qs.CancelRead(quic.StreamErrorCode(code))
	s.qs.CancelWrite(quic.StreamErrorCode(code))
}

// Reject closes the whole connection because the peer broke a rule; both sides learn the reason.
func (s *Stream) Reject(err *Error) { s.c.e.reject(s.c.qc, s.c.peer.Subject, err) }
