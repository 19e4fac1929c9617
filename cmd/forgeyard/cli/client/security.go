// What a client shows and whom it trusts: a token or a certificate, and the authority of the cluster for https.

package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/forgeyard/forgeyard/transport/pki"
)

// Token is a bearer token. Printing it shows nothing.
type Token string

// String hides the token.
func (t Token) String() string { return "(hidden)" }

// GoString hides the token.
func (t Token) GoString() string { return "(hidden)" }

// Security is how calls are protected. The zero value calls without a
// credential, in plain text or over a unix socket.
type Security struct {
	Token       Token            // sent with every request, but never in plain text to another machine
	Authorities *pki.Authorities // whose nodes https endpoints must be; nil allows no https
	Certificate *tls.Certificate // shown to https endpoints; nil for none
}

// bearer adds the token to each request.
type bearer struct {
	*http.Transport
	token Token
}

// RoundTrip sends a copy of the request: a transport must not change its argument.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b.token))
	return b.Transport.RoundTrip(r)
}

// protect applies the security to one endpoint.
func (s Security) protect(name, scheme, host string, tr *http.Transport) (http.RoundTripper, error) {
	if scheme == "https" {
		if s.Authorities == nil {
			return nil, fmt.Errorf("endpoint %q: https needs the cluster's ca.crt: give it with --ca or FORGEYARD_CA", name)
		}
		tr.TLSClientConfig = s.Authorities.ClientTLS(s.Certificate, time.Now)
		tr.TLSHandshakeTimeout, tr.ForceAttemptHTTP2 = ReadTimeout, true
	}
	switch {
	case s.Token == "" || scheme == "unix": // whoever opens the socket needs no token
		return tr, nil
	case scheme == "http" && !loopback(host):
		return nil, fmt.Errorf("endpoint %q: the token would travel in plain text; write https://", name)
	}
	return bearer{tr, s.Token}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// handshake says why no TLS connection came about; "" when the error is another.
// Nothing of a request has been sent then.
func handshake(err error) string {
	var refused *pki.Error
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &refused):
		return "it is not trusted: " + refused.Code + ": " + refused.Message
	case errors.As(err, &plain):
		return "it does not speak TLS; write http://"
	}
	return ""
}
