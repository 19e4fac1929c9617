// Serve: what happens to a stream that a peer opens: first frame, rules, admission, handler.

package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Handler answers a call. body is CBOR; resp is encoded as CBOR. An error that
// has a WireFields method keeps its fields on the wire. ctx ends when the caller gives up.
type Handler func(ctx context.Context, from Peer, body []byte) (resp any, err error)

// StreamHandler owns an incoming stream until it returns. ctx ends when the
// stream's own direction or the connection does.
type StreamHandler func(ctx context.Context, from Peer, s *Stream)

type route struct {
	fam    Family
	method string
}

// served is a handler and the largest body it is given, in bytes.
type served struct {
	handle Handler
	max    int
}

// routes says who serves what.
type routes struct {
	mu      sync.RWMutex
	calls   map[route]served
	streams map[Family]StreamHandler
}

func (r *routes) init() {
	r.calls, r.streams = map[route]served{}, map[Family]StreamHandler{}
}

// Handle serves a method of a family, replacing any earlier handler; nil ends it.
func (e *Endpoint) Handle(fam Family, method string, h Handler) {
	e.HandleUpTo(fam, method, fam.MaxFrame(), h)
}

// HandleUpTo is Handle for a method whose bodies are small: a call with more
// than maxBody bytes is refused before they are read. What peers may call that
// are no members should be bounded so.
func (e *Endpoint) HandleUpTo(fam Family, method string, maxBody int, h Handler) {
	e.routes.mu.Lock()
	defer e.routes.mu.Unlock()
	if h == nil {
		delete(e.routes.calls, route{fam, method})
		return
	}
	e.routes.calls[route{fam, method}] = served{h, min(maxBody, fam.MaxFrame())}
}

// HandleStream serves the streams of a family, replacing any earlier handler; nil ends it.
func (e *Endpoint) HandleStream(fam Family, h StreamHandler) {
	e.routes.mu.Lock()
	defer e.routes.mu.Unlock()
	if h == nil {
		delete(e.routes.streams, fam)
		return
	}
	e.routes.streams[fam] = h
}

func (r *routes) call(fam Family, method string) served {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.calls[route{fam, method}]
}

func (r *routes) stream(fam Family) StreamHandler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.streams[fam]
}

// opening is the first frame of every stream but the hello's, and of each call.
type opening struct {
	Call    bool          `cbor:"1,keyasint"` // one request and one answer; otherwise a stream
	Method  string        `cbor:"2,keyasint,omitempty"`
	Timeout time.Duration `cbor:"3,keyasint,omitempty"` // nanoseconds the caller will wait
	Keep    bool          `cbor:"4,keyasint,omitempty"` // the caller may make another call on this stream
}

// maxOpening bounds the first frame, in bytes.
const maxOpening = 512

// The first byte of an answer.
const (
	statusOK      = 0
	statusError   = 1    // a WireError follows
	statusRefused = 2    // a refusal follows
	statusAgain   = 0x80 // added: another call may follow on this stream
)

// refusal tells why a stream or call was not let through to its handler.
type refusal struct {
	Code    Code   `cbor:"1,keyasint"`
	Message string `cbor:"2,keyasint"`
}

// serveStream handles one incoming stream from its first frame to its end.
func (e *Endpoint) serveStream(c *conn, qs *quic.Stream) {
	// A stream that is opened and never used must not hold anything for long.
	ctx, cancel := context.WithTimeout(qs.Context(), e.limits.Handshake)
	s, open, err := e.open(ctx, c, qs)
	cancel()
	if err != nil {
		e.refuseStream(s, err)
		return
	}
	defer s.Close()
	if open.Call {
		e.serveCalls(s, open)
		return
	}
	if !e.admit(s, "") {
		return
	}
	h := e.routes.stream(s.fam)
	if h == nil {
		e.refuse(s, Refuse(CodeNoHandler, "streams of family %s", s.fam))
		return
	}
	if err := s.WriteFrame(qs.Context(), []byte{statusOK}); err != nil {
		return
	}
	h(qs.Context(), c.peer, s)
}

// open reads the first frame and applies the rules of family, version and kind.
func (e *Endpoint) open(ctx context.Context, c *conn, qs *quic.Stream) (*Stream, opening, *Error) {
	s := newStream(c, qs, familyHello)
	var o opening
	err := s.bounded(ctx, qs.SetReadDeadline, func() error {
		fam, n, err := readHeader(qs)
		if err != nil {
			return err
		}
		s.fam = fam
		if !fam.open(e.cfg.Identity.Subject().Kind, c.peer.Subject.Kind) {
			return Refuse(CodeWrongFamily, "a peer of kind %s may not use family %s here", c.peer.Subject.Kind, fam)
		}
		if n > maxOpening {
			return Refuse(CodeTooLarge, "a first frame of %d bytes, at most %d", n, maxOpening)
		}
		b, err := readPayload(qs, n)
		if err != nil {
			return err
		}
		return e.codec.decode(b, &o)
	})
	if err != nil {
		return s, o, asError(err)
	}
	return s, o, nil
}

// refuseStream ends a stream whose beginning broke a rule. A family that this
// pair of peers may never use costs the peer its connection.
func (e *Endpoint) refuseStream(s *Stream, err *Error) {
	switch err.Code {
	case CodeWrongFamily:
		s.Reject(err)
	case CodeUnknownFamily, CodeVersion, CodeTooLarge, CodeMalformed:
		e.rejected(s.c.peer.Remote, s.c.peer.Subject, err)
	}
	s.cancel(err.Code)
}

// admit asks the policy. Its refusal is told to the peer.
func (e *Endpoint) admit(s *Stream, method string) bool {
	if e.cfg.Admit == nil {
		return true
	}
	err := e.cfg.Admit(s.c.peer, s.fam, method)
	if err == nil {
		return true
	}
	var refused *Error
	if !errors.As(err, &refused) {
		refused = &Error{Code: CodeRefused, Message: err.Error()}
	}
	if refused.Code.closes() {
		s.Reject(refused)
		return false
	}
	e.rejected(s.c.peer.Remote, s.c.peer.Subject, refused)
	e.refuse(s, refused)
	return false
}

func (e *Endpoint) refuse(s *Stream, err *Error) {
	b, encErr := e.codec.encode(refusal{Code: err.Code, Message: clip(err.Message)})
	if encErr != nil {
		s.cancel(err.Code)
		return
	}
	e.answer(s, statusRefused, b)
}

// answer writes the answer of a call or the refusal of a stream, and reports whether it left.
func (e *Endpoint) answer(s *Stream, status byte, body []byte) bool {
	ctx, cancel := context.WithTimeout(s.Context(), DefaultCallTimeout)
	defer cancel()
	if err := s.WriteFrame(ctx, append([]byte{status}, body...)); err != nil {
		s.cancel(codeOf(err))
		return false
	}
	return true
}

// serveCalls answers a call and, when its caller keeps the stream, those that follow.
func (e *Endpoint) serveCalls(s *Stream, open opening) {
	for e.serveCall(s, open) {
		var err error
		if open, err = e.nextCall(s); err != nil {
			if !errors.Is(err, io.EOF) {
				e.refuseStream(s, asError(err))
			}
			return
		}
	}
}

// nextCall waits for another call, as long as the connection lives: the
// caller's streams are bounded already, and one that this side ended by itself
// could meet a call under way.
func (e *Endpoint) nextCall(s *Stream) (opening, error) {
	var open opening
	b, err := s.readUpTo(s.Context(), maxOpening)
	if err != nil {
		return open, err
	}
	if err := e.codec.decode(b, &open); err != nil {
		return open, err
	}
	if !open.Call {
		return open, Refuse(CodeMalformed, "a stream of calls carries only calls")
	}
	return open, nil
}

// serveCall reads the request, runs the handler and answers. It reports whether another call may follow.
func (e *Endpoint) serveCall(s *Stream, open opening) (again bool) {
	wait := open.Timeout
	if wait <= 0 || wait > MaxCallTimeout {
		wait = MaxCallTimeout
	}
	ctx, cancel := context.WithTimeout(s.Context(), wait)
	defer cancel()
	if !e.admit(s, open.Method) {
		return false
	}
	h := e.routes.call(s.fam, open.Method)
	if h.handle == nil {
		e.refuse(s, Refuse(CodeNoHandler, "method %q of family %s", open.Method, s.fam))
		return false
	}
	body, err := s.readUpTo(ctx, h.max)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			e.refuseStream(s, asError(err))
		}
		return false
	}
	resp, err := h.handle(ctx, s.c.peer, body)
	status, out := byte(statusOK), []byte(nil)
	if err == nil {
		out, err = e.encodeAnswer(s.fam, resp)
	}
	if err != nil {
		status = statusError
		if out, err = e.codec.encode(wireError(err)); err != nil {
			s.cancel(CodeMalformed)
			return false
		}
	}
	if open.Keep {
		status |= statusAgain
	}
	return e.answer(s, status, out) && open.Keep
}

// encodeAnswer encodes a handler's answer. One that cannot be sent leaves the caller with an unknown outcome.
func (e *Endpoint) encodeAnswer(fam Family, resp any) ([]byte, error) {
	b, err := e.codec.encode(resp)
	if err == nil && len(b)+1 > fam.MaxFrame() {
		err = Refuse(CodeTooLarge, "an answer of %d bytes on family %s, at most %d", len(b), fam, fam.MaxFrame())
	}
	if err != nil {
		return nil, unknown(err)
	}
	return b, nil
}
