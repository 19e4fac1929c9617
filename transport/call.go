// Call: requests to a peer, and the opening of streams.

package transport

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Call asks a node. req and resp are CBOR; a nil resp ignores the answer. A
// handler's error comes back as *WireError, everything else as *Error, whose
// OutcomeUnknown tells whether the handler may have run. Without a deadline
// ctx is bounded by DefaultCallTimeout.
func (e *Endpoint) Call(ctx context.Context, to fsm.NodeID, fam Family, method string, req, resp any) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	c, err := e.connTo(ctx, to)
	if err != nil {
		return err
	}
	return e.call(ctx, c, fam, method, req, resp)
}

// CallAddr asks whichever node of this cluster answers at an address (a
// joiner, an agent). The peer is zero when there was no connection.
func (e *Endpoint) CallAddr(ctx context.Context, addr string, fam Family, method string, req, resp any) (Peer, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	c, err := e.connAddr(ctx, addr)
	if err != nil {
		return Peer{}, err
	}
	return c.peer, e.call(ctx, c, fam, method, req, resp)
}

// OpenStream opens a stream to a node; it returns when the node has admitted
// it. A connection that turns out to be dead is replaced once.
func (e *Endpoint) OpenStream(ctx context.Context, to fsm.NodeID, fam Family) (*Stream, error) {
	s, _, err := e.openStream(ctx, fam, func(ctx context.Context) (*conn, error) { return e.connTo(ctx, to) })
	return s, err
}

// OpenStreamAddr opens a stream to whichever node of this cluster answers at an address.
func (e *Endpoint) OpenStreamAddr(ctx context.Context, addr string, fam Family) (*Stream, Peer, error) {
	return e.openStream(ctx, fam, func(ctx context.Context) (*conn, error) { return e.connAddr(ctx, addr) })
}

func (e *Endpoint) openStream(ctx context.Context, fam Family, connect func(context.Context) (*conn, error)) (*Stream, Peer, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	for try := 0; ; try++ {
		c, err := connect(ctx)
		if err != nil {
			return nil, Peer{}, err
		}
		s, err := e.openOn(ctx, c, fam)
		if err == nil {
			return s, c.peer, nil
		}
		// Nothing but the opening was sent, so trying again on a new connection is safe.
		if endsConnection(err) { // the streams of a connection hear of its end a moment before it counts as dead
			select {
			case <-c.qc.Context().Done():
			case <-ctx.Done():
			}
		}
		var told *Error
		if try > 0 || c.alive() || errors.As(err, &told) && told.Final() {
			return nil, c.peer, err
		}
	}
}

func (e *Endpoint) openOn(ctx context.Context, c *conn, fam Family) (*Stream, error) {
	// With the time in it the first packet is large enough for a restarted peer
	// to answer that it does not know the connection; to tiny ones it is silent.
	deadline, _ := ctx.Deadline()
	out, err := e.encodeOpening(c, fam, opening{Timeout: time.Until(deadline)})
	if err != nil {
		return nil, err
	}
	s, err := newOutgoing(ctx, c, fam)
	if err != nil {
		return nil, err
	}
	if err := s.write(ctx, out); err != nil {
		s.end(codeOf(err))
		return nil, c.reason(err)
	}
	if _, _, err := e.readAnswer(ctx, s); err != nil {
		s.end(CodeOK)
		return nil, c.reason(err)
	}
	return s, nil
}

// encodeOpening is the first frame of a stream or call.
func (e *Endpoint) encodeOpening(c *conn, fam Family, o opening) ([]byte, error) {
	if !fam.open(e.cfg.Identity.Subject().Kind, c.peer.Subject.Kind) {
		return nil, Refuse(CodeWrongFamily, "family %s with a peer of kind %s", fam, c.peer.Subject.Kind)
	}
	b, err := e.codec.encode(o)
	if err != nil {
		return nil, &Error{Code: CodeMalformed, Err: err}
	}
	return appendFrame(nil, fam, b)
}

// newOutgoing opens a QUIC stream. The peer sees nothing before the first write.
func newOutgoing(ctx context.Context, c *conn, fam Family) (*Stream, error) {
	qs, err := c.qc.OpenStreamSync(ctx)
	if err != nil {
		return nil, c.reason(classify(err))
	}
	return newStream(c, qs, fam), nil
}

func (e *Endpoint) call(ctx context.Context, c *conn, fam Family, method string, req, resp any) error {
	body, err := e.codec.encode(req)
	if err != nil {
		return &Error{Code: CodeMalformed, Err: err}
	}
	deadline, _ := ctx.Deadline()
	out, err := e.encodeOpening(c, fam, opening{Call: true, Keep: true, Method: method, Timeout: time.Until(deadline)})
	if err != nil {
		return err
	}
	if out, err = appendFrame(out, fam, body); err != nil {
		return err
	}
	s := c.kept.take(fam)
	if s == nil {
		if s, err = newOutgoing(ctx, c, fam); err != nil {
			return err
		}
	}
	b, again, err := e.exchange(ctx, s, out)
	if !again || !c.kept.put(s) {
		s.Close() // an abandoned half would hold a place in the peer's limit
	}
	if err != nil {
		return err
	}
	return e.codec.decode(b, resp)
}

// exchange sends a request and reads its answer; again tells that the stream can carry another call.
func (e *Endpoint) exchange(ctx context.Context, s *Stream, request []byte) (answer []byte, again bool, err error) {
	// A peer that answers early, or refuses, stops listening before everything
	// is written. Then its answer says more than the failed write.
	sendErr := s.write(ctx, request)
	answer, again, err = e.readAnswer(ctx, s)
	switch {
	case err == nil, definite(err):
		return answer, again && sendErr == nil, err
	case sendErr != nil:
		err = sendErr
	}
	return nil, false, unknown(s.c.reason(err))
}

// readAnswer reads the answer of a call or of a stream's opening. again tells
// that the peer waits for another call on the stream.
func (e *Endpoint) readAnswer(ctx context.Context, s *Stream) (answer []byte, again bool, err error) {
	b, err := s.ReadFrame(ctx)
	if err == io.EOF || err == nil && len(b) == 0 { //nolint:errorlint // the bare end of the stream
		return nil, false, Refuse(CodeMalformed, "no answer")
	}
	if err != nil {
		return nil, false, err
	}
	again = b[0]&statusAgain != 0
	switch b[0] &^ statusAgain {
	case statusOK:
		return b[1:], again, nil
	case statusError:
		w := &WireError{}
		if err := e.codec.decode(b[1:], w); err != nil {
			return nil, false, err
		}
		return nil, again, w
	case statusRefused:
		var r refusal
		if err := e.codec.decode(b[1:], &r); err != nil {
			return nil, false, err
		}
		return nil, false, &Error{Code: r.Code, Message: r.Message, Remote: true}
	}
	return nil, false, Refuse(CodeMalformed, "answer status %d", b[0])
}

// definite reports whether an error proves that the outcome is known: the
// handler answered, or the peer refused the stream before its handler.
func definite(err error) bool {
	var w *WireError
	if errors.As(err, &w) {
		return true
	}
	var e *Error
	if !errors.As(err, &e) || !e.Remote {
		return false
	}
	switch e.Code {
	case CodeNotMember, CodeRefused, CodeStarting, CodeNoHandler, CodeUnknownFamily, CodeVersion, CodeTooLarge, CodeMalformed, CodeWrongFamily:
		return true
	}
	return false
}

// unknown marks an error that came after the request was sent.
func unknown(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Code: CodeNetwork, OutcomeUnknown: true, Err: err}
	}
	marked := *e
	marked.OutcomeUnknown = true
	return &marked
}

// reason prefers the reason for which the connection ended to the stream's view of it.
func (c *conn) reason(err error) error {
	if c.alive() {
		return err
	}
	return classify(context.Cause(c.qc.Context()))
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultCallTimeout)
}
