// Errors: what a failed call, stream or connection returns, and how a handler's error crosses the wire.

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/quic-go/quic-go"
)

// Error is a transport failure or refusal with its reason (§184, §314).
type Error struct {
	Code    Code
	Message string
	Remote  bool // the peer decided; Message is the peer's
	// OutcomeUnknown says that the request may have reached the peer, which may have acted on it.
	OutcomeUnknown bool
	Err            error // local cause
}

// Refuse makes the error with which an admission policy or a handler refuses.
func Refuse(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	f := e.Code.fact()
	s := f.fy + ": " + f.text
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Remote {
		s += " (told by the peer)"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches by reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Final reports whether trying the same again cannot help.
func (e *Error) Final() bool { return e.Code.fact().final }

// WireFields gives the fields of the coordination error that this is (§314).
func (e *Error) WireFields() (kind uint8, code, message, hint string, outcomeUnknown bool) {
	f := e.Code.fact()
	msg := f.text
	if e.Message != "" {
		msg += ": " + e.Message
	}
	return f.kind, f.fy, msg, f.hint, e.OutcomeUnknown
}

// WireError is a handler's error as it crossed the wire.
type WireError struct {
	Kind           uint8  `cbor:"1,keyasint"` // a cluster.Kind
	Code           string `cbor:"2,keyasint"` // FY-AREA-NNN
	Message        string `cbor:"3,keyasint"`
	Hint           string `cbor:"4,keyasint,omitempty"`
	OutcomeUnknown bool   `cbor:"5,keyasint,omitempty"`
}

func (e *WireError) Error() string { return e.Code + ": " + e.Message }

// WireFields gives the fields.
func (e *WireError) WireFields() (kind uint8, code, message, hint string, outcomeUnknown bool) {
	return e.Kind, e.Code, e.Message, e.Hint, e.OutcomeUnknown
}

// wireFielder is any error that knows its wire form; cluster.Error is one.
type wireFielder interface {
	WireFields() (kind uint8, code, message, hint string, outcomeUnknown bool)
}

// maxWireText bounds the texts of an error on the wire, in bytes.
const maxWireText = 1024

// wireError is the wire form of a handler's error. An error without one is
// internal, and its outcome unknown: the handler may have acted before it failed.
func wireError(err error) *WireError {
	var f wireFielder
	if !errors.As(err, &f) {
		return &WireError{Kind: kindInternal, Code: "FY-NET-099", Message: clip(err.Error()), OutcomeUnknown: true}
	}
	w := &WireError{}
	w.Kind, w.Code, w.Message, w.Hint, w.OutcomeUnknown = f.WireFields()
	w.Code, w.Message, w.Hint = clip(w.Code), clip(w.Message), clip(w.Hint)
	return w
}

// clip makes a text fit for the wire: the codec of the peer refuses what is not
// UTF-8, and then the reason would be lost with the error that carries it.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxWireText)], "")
}

// classify turns any error of the network stack into an *Error; nil and io.EOF stay as they are.
func classify(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // only the bare end of a stream passes
		return err
	}
	var (
		own    *Error
		cert   *pki.Error
		app    *quic.ApplicationError
		stream *quic.StreamError
		tr     *quic.TransportError
		idle   *quic.IdleTimeoutError
		hs     *quic.HandshakeTimeoutError
		reset  *quic.StatelessResetError
	)
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &cert):
		return &Error{Code: certCode(cert), Message: cert.Message, Err: cert.Err}
	case errors.As(err, &app):
		return &Error{Code: Code(app.ErrorCode), Message: app.ErrorMessage, Remote: app.Remote}
	case errors.As(err, &stream):
		return &Error{Code: Code(stream.ErrorCode), Remote: stream.Remote}
	case errors.As(err, &tr):
		if isAlert(tr, alertCertificateRequired) {
			return &Error{Code: CodeNoCertificate, Remote: tr.Remote, Err: err}
		}
		return &Error{Code: CodeNetwork, Remote: tr.Remote, Err: err}
	case errors.As(err, &idle), errors.As(err, &hs):
		return &Error{Code: CodeNetwork, Message: "the peer is silent", Err: err}
	case errors.As(err, &reset):
		return &Error{Code: CodeNetwork, Message: "the peer restarted and knows nothing of the connection", Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Code: CodeTimeout, Err: err}
	case errors.Is(err, net.ErrClosed), errors.Is(err, quic.ErrTransportClosed):
		return &Error{Code: CodeShutdown, Err: err}
	}
	return &Error{Code: CodeNetwork, Err: err}
}

// endsConnection reports whether an error of a stream is that of its whole connection.
func endsConnection(err error) bool {
	var (
		tr    *quic.TransportError
		idle  *quic.IdleTimeoutError
		reset *quic.StatelessResetError
	)
	return errors.As(err, &tr) || errors.As(err, &idle) || errors.As(err, &reset)
}

// cryptoErrorBase is where QUIC puts TLS alerts among its transport error codes (RFC 9001 §4.8).
const (
	cryptoErrorBase          = 0x100
	alertCertificateRequired = tls.AlertError(116)
)

func isAlert(e *quic.TransportError, a tls.AlertError) bool {
	return uint64(e.ErrorCode) == cryptoErrorBase+uint64(a)
}

// codeOf is the reason to close or cancel with.
func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeNetwork
}
