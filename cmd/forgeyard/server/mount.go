// Mounting: a route becomes a handler that lets nobody through but those whom its permission names. Default is deny.

package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// errMethod (FY-API-009): the path exists, the method does not.
var errMethod = &access.Fault{Status: http.StatusMethodNotAllowed, Code: "FY-API-009", Message: "this path does not have that method"}

// unmatched is the label under which requests that no route takes are counted.
const unmatched = "unmatched"

// mount builds the mux. net/http panics on a conflict of patterns; that is a
// defect of this build, reported as an error so that the daemon says which.
func (s *Server) mount(routes []access.Route, web bool) (mux *http.ServeMux, err error) {
	mux = http.NewServeMux()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mount routes: %v", r)
		}
	}()
	methods := map[string][]string{}
	for _, r := range routes {
		if err := s.mountable(r); err != nil {
			return nil, fmt.Errorf("mount %s %s: %w", r.Method, r.Pattern, err)
		}
		mux.Handle(r.Method+" "+r.Pattern, s.metrics.observe(r, s.limit(r, web, s.guard(r, web, s.flow(r)))))
		methods[r.Pattern] = append(methods[r.Pattern], r.Method)
	}
	other := access.Route{Pattern: unmatched}
	for pattern, allowed := range methods {
		mux.Handle(pattern, s.metrics.observe(other, wrongMethod(allowed)))
	}
	mux.Handle("/", s.metrics.observe(other, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.WriteError(w, access.ErrNotFound.Hinted("this daemon may be older or newer than its caller: compare forgeyard version and forgeyard cluster members").Because("no such path: %s", r.URL.Path))
	})))
	return mux, nil
}

// mountable refuses a route that would be open by accident: what is public is
// listed here and nowhere else (§224).
func (s *Server) mountable(r access.Route) error {
	switch {
	case r.Method == "" || r.Handler == nil:
		return errors.New("a route has a method and a handler")
	case r.Permission.Known():
		return nil
	case r.Permission != access.Public:
		return fmt.Errorf("unknown permission %q", r.Permission)
	case r.Method == http.MethodGet && slices.Contains([]string{"/livez", "/readyz", "/health", "/status"}, r.Pattern):
		return nil
	case r.Method == http.MethodGet && r.Pattern == "/metrics" && s.cfg.Access.PublicMetrics:
		return nil
	}
	return errors.New("a route without a permission that is not in the list of public ones")
}

// guard lets a request pass whose caller holds the route's permission.
func (s *Server) guard(route access.Route, web bool, next http.Handler) http.Handler {
	if route.Permission == access.Public {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := access.NewCaller(access.BySocket, "", "", access.Permissions()...) // whoever could open it
		if web {
			var err error
			if caller, err = s.cfg.Access.identify(r, s.cfg.Now()); err != nil {
				s.deny(w, r, err)
				return
			}
		}
		if !caller.May(route.Permission) {
			s.deny(w, r, errDenied.Because("%s lacks the permission %s", caller, route.Permission))
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), caller)))
	})
}

// deny answers 401 or 403. The log line has the reason, never a credential.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, err error) {
	if status, _ := access.Explain(err); status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="forgeyard"`)
	}
	s.cfg.Logger.Debug("request refused", "request", w.Header().Get(access.RequestIDHeader), "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "reason", err)
	access.WriteError(w, err)
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
