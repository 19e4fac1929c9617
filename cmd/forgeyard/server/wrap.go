// What every request passes before its handler: an id, panic recovery, the
// browser checks, and the body limit.

package server

import (
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// The faults of requests that a browser was tricked into sending.
var (
	errHost = &access.Fault{
		Status: http.StatusMisdirectedRequest, Code: "FY-API-007", Message: "the Host header does not name this machine",
		Hint: "use the loopback address or localhost; other names are refused because a web page could point them here",
	}
	errOrigin = &access.Fault{
		Status: http.StatusForbidden, Code: "FY-API-008", Message: "a request from another origin may not change anything",
		Hint: "use the command line, or the console of this daemon",
	}
	errMethod = &access.Fault{Status: http.StatusMethodNotAllowed, Code: "FY-API-009", Message: "this path does not have that method"}
)

// wrap puts the checks around the mux. web turns on those that only matter
// where a browser can reach the listener, which it cannot over a unix socket.
func (s *Server) wrap(next http.Handler, web bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := ulid.Make().String()
		h := w.Header()
		h.Set(access.RequestIDHeader, id)
		h.Set("X-Content-Type-Options", "nosniff")
		defer s.recovered(w, r, id)
		if web {
			if err := sameMachine(r); err != nil {
				access.WriteError(w, err)
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		next.ServeHTTP(w, r)
	})
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

// sameMachine refuses DNS rebinding (a foreign name that resolves to loopback)
// and requests that another site makes a browser send (CSRF).
func sameMachine(r *http.Request) error {
	if !localName(r.Host) {
		return errHost.Because("the Host header %q does not name this machine", r.Host)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return errOrigin
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host {
		return errOrigin
	}
	return nil
}

func localName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// wrongMethod answers a known path asked with a method it does not have.
func wrongMethod(allowed []string) http.Handler {
	slices.Sort(allowed)
	list := strings.Join(slices.Compact(allowed), ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", list)
		access.WriteError(w, errMethod.Because("%s has %s, not %s", r.URL.Path, list, r.Method))
	})
}
