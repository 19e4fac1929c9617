// The server's own routes: /livez, /readyz, /health, /metrics and /v1/version.

package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Version is what GET /v1/version answers.
type Version struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Go         string `json:"go"`
}

// own lists the server's routes.
func (s *Server) own() []access.Route {
	figures := access.ClusterRead
	if s.cfg.Access.PublicMetrics {
		figures = access.Public
	}
	return []access.Route{
		{Method: http.MethodGet, Pattern: "/livez", Permission: access.Public, Handler: http.HandlerFunc(s.livez)},
		{Method: http.MethodGet, Pattern: "/readyz", Permission: access.Public, Handler: http.HandlerFunc(s.readyz)},
		{Method: http.MethodGet, Pattern: "/health", Permission: access.Public, Handler: http.HandlerFunc(s.readyz)},
		{Method: http.MethodGet, Pattern: "/metrics", Permission: figures, Handler: s.metrics.handler()},
		{Method: http.MethodGet, Pattern: "/v1/version", Permission: access.ClusterRead, Handler: http.HandlerFunc(s.version)},
	}
}

// livez says that the process serves. It never looks at quorum: a partition
// must not make a supervisor restart the whole fleet.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok\n") }

// readyz says whether this daemon should receive traffic. Machines use the
// status; ?verbose lists the checks, without reasons, because it is public;
// ?exclude=NAME leaves a check out of the verdict, as for a load balancer that
// wants daemons also while PostgreSQL is down.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	results := s.cfg.Ready.Run(r.Context())
	status, verdict := http.StatusOK, "readyz check passed\n"
	var b strings.Builder
	for _, x := range results {
		if slices.Contains(query["exclude"], x.Name) && !errors.Is(x.Err, ErrStopping) {
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", x.Name)
			continue
		}
		if x.Err == nil {
			fmt.Fprintf(&b, "[+]%s ok\n", x.Name)
			continue
		}
		status, verdict = http.StatusServiceUnavailable, "readyz check failed\n"
		fmt.Fprintf(&b, "[-]%s failed: reason withheld\n", x.Name)
	}
	if !query.Has("verbose") && status == http.StatusOK {
		plain(w, status, "ok\n")
		return
	}
	plain(w, status, b.String()+verdict)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	v := s.cfg.Version
	v.APIVersion, v.Kind = "forgeyard.dev/v1", "Version"
	access.WriteJSON(w, http.StatusOK, v)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client is gone: nobody is left to tell
}
