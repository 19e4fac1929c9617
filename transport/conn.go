// Conn: the life of one connection: judged, greeted, registered, served, and closed when its certificate ends.

package transport

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/quic-go/quic-go"
)

// conn is a connection whose peer is known.
type conn struct {
	e        *Endpoint
	qc       *quic.Conn
	peer     Peer
	dialled  string    // the address it was made to; empty for an incoming one
	notAfter time.Time // end of the peer's certificate
	kept     kept
}

func (c *conn) alive() bool { return c.qc.Context().Err() == nil }

// close ends the connection for a reason that both sides learn.
func (c *conn) close(err *Error) {
	_ = c.qc.CloseWithError(quic.ApplicationErrorCode(err.Code), clip(err.Message)) // it always returns nil
}

// accept greets incoming connections until the endpoint closes.
func (e *Endpoint) accept() {
	for {
		qc, err := e.ln.Accept(e.ctx)
		if err != nil {
			return
		}
		if !e.tasks.Go(func() { e.welcome(qc) }) {
			return
		}
	}
}

// welcome judges an incoming connection, answers its hello and serves it.
func (e *Endpoint) welcome(qc *quic.Conn) {
	v := visitOf(qc)
	defer v.leave()
	c, err := e.answerHello(qc)
	if err != nil {
		v.leave()
		var subject pki.Subject
		if c != nil {
			subject = c.peer.Subject
		}
		e.reject(qc, subject, err)
		return
	}
	v.leave()
	e.live(c)
}

func (e *Endpoint) answerHello(qc *quic.Conn) (*conn, *Error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.limits.Handshake)
	defer cancel()
	peer, until, refused := e.judge(qc, pki.Expect{Purpose: pki.AsClient, Kind: e.cfg.Accept})
	c := &conn{e: e, qc: qc, peer: peer, notAfter: until}
	if refused != nil {
		return c, refused
	}
	qs, err := qc.AcceptStream(ctx)
	if err != nil {
		return c, asError(err)
	}
	s := newStream(c, qs, familyHello)
	defer s.Close()
	b, err := s.ReadFrame(ctx)
	if err != nil {
		return c, asError(err)
	}
	var theirs greeting
	if err := e.codec.decode(b, &theirs); err != nil {
		return c, asError(err)
	}
	if r := theirs.Refused; r != nil {
		return c, &Error{Code: r.Code, Message: clip(r.Message), Remote: true}
	}
	own := e.cfg.Hello()
	c.peer.Hello = theirs.Hello
	if err := checkHello(own, c.peer.Hello, peer.Subject); err != nil {
		return c, err
	}
	// Registered before the answer: the peer may use the connection at once.
	if err := e.register(c); err != nil {
		return c, err
	}
	if err := e.write(ctx, s, own); err != nil {
		e.peers.remove(c)
		return c, asError(err)
	}
	return c, nil
}

// greet judges a dialled connection, says hello, and registers it when the hello is answered.
func (e *Endpoint) greet(ctx context.Context, qc *quic.Conn, addr string, id string) (*conn, *Error) {
	peer, until, refused := e.judge(qc, pki.Expect{Purpose: pki.AsServer, Kind: pki.KindNode, ID: id})
	c := &conn{e: e, qc: qc, peer: peer, notAfter: until, dialled: addr}
	qs, err := qc.OpenStreamSync(ctx)
	if err != nil {
		return c, first(refused, asError(err))
	}
	s := newStream(c, qs, familyHello)
	defer s.Close()
	own := e.cfg.Hello()
	say := greeting{Hello: own}
	if refused != nil {
		say = greeting{Refused: &refusal{Code: refused.Code, Message: refused.Message}}
	}
	if err := e.write(ctx, s, say); err != nil {
		return c, first(refused, asError(e.closeReason(ctx, qc, err)))
	}
	if refused != nil {
		// The peer closes when it has read why; whatever it answers is not for us.
		select {
		case <-qc.Context().Done():
		case <-ctx.Done():
		}
		return c, refused
	}
	b, err := s.ReadFrame(ctx)
	if err != nil {
		return c, asError(e.closeReason(ctx, qc, err))
	}
	if err := e.codec.decode(b, &c.peer.Hello); err != nil {
		return c, asError(err)
	}
	if err := checkHello(own, c.peer.Hello, peer.Subject); err != nil {
		return c, err
	}
	if err := e.register(c); err != nil {
		return c, err
	}
	return c, nil
}

// closeReason waits for the reason for which the peer closes the connection:
// the end of the stream, which tells nothing, may arrive a moment earlier.
func (e *Endpoint) closeReason(ctx context.Context, qc *quic.Conn, err error) error {
	var own *Error
	if err != io.EOF && !(errors.As(err, &own) && own.Remote) { //nolint:errorlint // the bare end of the stream
		return err
	}
	select {
	case <-qc.Context().Done():
		return context.Cause(qc.Context())
	case <-ctx.Done():
		return err
	}
}

func (e *Endpoint) write(ctx context.Context, s *Stream, v any) error {
	b, err := e.codec.encode(v)
	if err != nil {
		return err
	}
	return s.WriteFrame(ctx, b)
}

// first prefers this side's own refusal to what happened while it was told.
func first(refused, err *Error) *Error {
	if refused != nil {
		return refused
	}
	return err
}

// register makes the connection usable and ends those of the peer's earlier processes.
func (e *Endpoint) register(c *conn) *Error {
	dead, err := e.peers.add(c)
	if err != nil {
		return err
	}
	for _, d := range dead {
		d.close(&Error{Code: CodeShutdown, Message: "the peer restarted"})
	}
	return nil
}

// live serves a registered connection until it ends.
func (e *Endpoint) live(c *conn) {
	defer e.peers.remove(c)
	// An open connection keeps the certificate of its handshake, so the end of
	// that certificate must end the connection (§214).
	expiry := time.NewTimer(c.notAfter.Sub(e.cfg.Now()))
	defer expiry.Stop()
	if !e.tasks.Go(func() { e.serve(c) }) {
		c.close(&Error{Code: CodeShutdown})
		return
	}
	e.log.Debug("connected", "peer", c.peer.Subject, "remote", c.peer.Remote, "incarnation", c.peer.Hello.Incarnation)
	select {
	case <-expiry.C:
		err := Refuse(CodeExpired, "the certificate of %s ended at %s", c.peer.Subject.ID, c.notAfter.UTC().Format(time.RFC3339))
		e.reject(c.qc, c.peer.Subject, err)
	case <-e.ctx.Done():
		c.close(&Error{Code: CodeShutdown})
	case <-c.qc.Context().Done():
	}
	cause := classify(context.Cause(c.qc.Context()))
	e.log.Debug("disconnected", "peer", c.peer.Subject, "reason", cause)
	var err *Error
	if errors.As(cause, &err) && err.Remote && err.Final() {
		e.rejected(c.peer.Remote, c.peer.Subject, err)
	}
}

// serve handles the peer's streams until the connection ends.
func (e *Endpoint) serve(c *conn) {
	for {
		qs, err := c.qc.AcceptStream(e.ctx)
		if err != nil {
			return
		}
		if !e.tasks.Go(func() { e.serveStream(c, qs) }) {
			return
		}
	}
}

func asError(err error) *Error {
	var out *Error
	if errors.As(classify(err), &out) {
		return out
	}
	return &Error{Code: CodeMalformed, Err: err} // the bare end of a stream where a frame was due
}
