// What every request passes before its route: an id, panic recovery, the bound of its header, and where a browser can
// reach the listener the checks against requests that it was tricked into sending.

package server

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// The faults of a request's form.
var (
	errHost = &access.Fault{
		Status: http.StatusMisdirectedRequest, Code: "FY-API-007", Message: "the Host header does not name this machine",
		Hint: "use the listener's address, localhost, or a name from api.hosts; other names are refused because a web page could point them here",
	}
	errOrigin = &access.Fault{
		Status: http.StatusForbidden, Code: "FY-API-008", Message: "a request from another origin may not change anything",
		Hint: "use the command line, or the console of this daemon",
	}
	errContentType = &access.Fault{
		Status: http.StatusUnsupportedMediaType, Code: "FY-API-011", Message: "the body is not of the type that this path takes",
		Hint: "send Content-Type: application/json; an upload sends application/octet-stream",
	}
	errHeader = &access.Fault{
		Status: http.StatusRequestHeaderFieldsTooLarge, Code: "FY-API-012", Message: fmt.Sprintf("the header is larger than %d bytes", MaxHeader),
	}
)

// wrap puts the checks around the mux. web turns on those that only matter
// where a browser can reach the listener, which it cannot over a unix socket.
func (s *Server) wrap(next http.Handler, web bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.begin()
		defer s.active.end()
		id := ulid.Make().String()
		h := w.Header()
		h.Set(access.RequestIDHeader, id)
		h.Set("X-Content-Type-Options", "nosniff")
		defer s.recovered(w, r, id)
		if err := s.admissible(r, web); err != nil {
			access.WriteError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admissible refuses a header that is too large, DNS rebinding (a foreign name
// that resolves to this machine) and requests that another site makes a browser
// send (CSRF).
func (s *Server) admissible(r *http.Request, web bool) error {
	switch {
	case headerSize(r) > MaxHeader:
		return errHeader
	case !web:
		return nil
	case !s.ownName(r):
		return errHost.Because("the Host header %q does not name this machine", r.Host)
	case s.origin.Check(r) != nil:
		return errOrigin
	}
	return nil
}

// recovered turns a handler's panic into a 500 and a log line with the stack.
// http.ErrAbortHandler passes: it is how a handler cuts a connection on purpose.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request, id string) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	s.cfg.Logger.Error("handler panicked", "request", id, "method", r.Method, "path", r.URL.Path, "panic", cause, "stack", string(debug.Stack()))
	access.WriteError(w, errors.New("panic"))
}

// headerSize is the header's size in bytes, about as it was sent.
func headerSize(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// ownName reports whether the Host header means this machine: a loopback
// address, the address at which the connection arrived, or a configured name.
func (s *Server) ownName(r *http.Request) bool {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil { // for want of a port perhaps, and of nothing else
		host, port, err = net.SplitHostPort(r.Host + ":")
	}
	if err != nil || strings.Trim(port, "0123456789") != "" {
		return false
	}
	// An IPv6 address has brackets, and nothing else has; the split, which takes them off, has seen that there are both.
	if strings.HasPrefix(r.Host, "[") != strings.Contains(host, ":") {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		here, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		return ip.IsLoopback() || ok && here.IP.Equal(ip)
	}
	for _, name := range s.cfg.Access.Hosts {
		if strings.EqualFold(host, name) {
			return true
		}
	}
	return strings.EqualFold(host, "localhost")
}

// checkType demands the content type that a route takes. What a page of another
// site can send without asking first is neither JSON nor an upload.
func checkType(r *http.Request, upload bool) error {
	if r.ContentLength == 0 {
		return nil
	}
	given, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return errContentType.Because("the request has a body and no valid Content-Type")
	case !upload && given != "application/json":
		return errContentType.Because("this path takes application/json, not %s", given)
	case upload && (given == "application/x-www-form-urlencoded" || given == "multipart/form-data" || given == "text/plain"):
		return errContentType.Because("an upload is not of type %s", given)
	}
	return nil
}
