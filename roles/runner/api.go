// The HTTP routes of runs, their bytes, and agents: what they use of the outside, and the table.

package runner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/events"
)

// IdempotencyHeader carries the key under which a repeated submission returns the first run.
const IdempotencyHeader = "Idempotency-Key"

const (
	apiVersion = "forgeyard.dev/v1"
	kindRun    = "Run"
	kindRuns   = "RunList"
)

// ErrNoArtifactStore (FY-RUN-003): this daemon was given no artifact store.
var ErrNoArtifactStore = &access.Fault{
	Status: http.StatusServiceUnavailable, Code: "FY-RUN-003", Message: "this daemon has no artifact store",
	Hint: "set the artifact store's URL in the configuration of every daemon",
}

// SourceStore keeps uploaded trees; artifact.Sources is one.
type SourceStore interface {
	Put(ctx context.Context, r io.Reader, want artifact.Digest) (artifact.Source, error)
}

// APIConfig is everything the routes use of the outside. All but Store may be zero.
type APIConfig struct {
	Store   Database
	Blobs   Blobs       // nil: sources and artifacts are refused with ErrNoArtifactStore
	Sources SourceStore // as Blobs
	Logs    LogStore    // as Blobs

	Notify    func(topic string)              // called after a commit; must not block
	Subscribe func(topic string, wake func()) // as events.Bus has it

	Audit cluster.Audit                             // of what is done to agents
	Whose func() (node fsm.NodeID, epoch fsm.Epoch) // what audit records name

	Limits QueueLimits
	Logger *slog.Logger
}

// API serves the routes of runs and agents. Any daemon may serve any of them.
type API struct {
	cfg   APIConfig
	quota *quota
	grown *broadcast // some log has grown
}

// NewAPI makes the routes' state.
func NewAPI(cfg APIConfig) *API {
	if cfg.Notify == nil {
		cfg.Notify = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Whose == nil {
		cfg.Whose = func() (fsm.NodeID, fsm.Epoch) { return fsm.NodeID{}, 0 }
	}
	a := &API{cfg: cfg, quota: newQuota(cfg.Store, cfg.Limits), grown: newBroadcast()}
	if cfg.Subscribe != nil {
		cfg.Subscribe(events.Logs, a.grown.wake)
	}
	return a
}

// Routes lists the routes, each with the permission it needs.
func (a *API) Routes() []access.Route {
	const get, post = http.MethodGet, http.MethodPost
	return []access.Route{
		{Method: post, Pattern: "/v1/runs", Permission: access.RunSubmit, Handler: handler(a.submit)},
		{Method: get, Pattern: "/v1/runs", Permission: access.RunRead, Handler: handler(a.list)},
		{Method: get, Pattern: "/v1/runs/{id}", Permission: access.RunRead, Handler: handler(a.show)},
		{Method: post, Pattern: "/v1/runs/{id}/cancel", Permission: access.RunCancel, Handler: handler(a.cancel)},
		{Method: get, Pattern: "/v1/runs/{id}/artifacts", Permission: access.RunRead, Handler: handler(a.artifacts)},
		{Method: get, Pattern: "/v1/runs/{id}/jobs/{job}/artifacts/{name}", Permission: access.RunRead, Stream: true, Handler: handler(a.download)},
		{Method: get, Pattern: "/v1/runs/{id}/jobs/{job}/logs", Permission: access.RunRead, Stream: true, Handler: handler(a.logs)},
		{Method: post, Pattern: "/v1/sources", Permission: access.RunSubmit, Upload: MaxSource, Handler: handler(a.upload)},
		{Method: get, Pattern: "/v1/agents", Permission: access.ClusterRead, Handler: handler(a.agents)},
		{Method: get, Pattern: "/v1/agents/{id}", Permission: access.ClusterRead, Handler: handler(a.agent)},
		{Method: post, Pattern: "/v1/agents/{id}/drain", Permission: access.ClusterManage, Handler: handler(a.change(drainAgent))},
		{Method: post, Pattern: "/v1/agents/{id}/undrain", Permission: access.ClusterManage, Handler: handler(a.change(undrainAgent))},
		{Method: post, Pattern: "/v1/agents/{id}/quarantine", Permission: access.ClusterManage, Handler: handler(a.change(quarantineAgent))},
		{Method: post, Pattern: "/v1/agents/{id}/release", Permission: access.ClusterManage, Handler: handler(a.change(releaseAgent))},
	}
}

// handler answers an error where the handler returned one before it wrote anything.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	var cut *cutError
	switch {
	case err == nil:
	case errors.As(err, &cut):
		panic(http.ErrAbortHandler) // the client must not take what it has for the whole
	default:
		access.WriteError(w, err)
	}
}

// cutError ends an answer that has begun and cannot be finished.
type cutError struct{ err error }

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// optionalJSON reads a body that may be missing.
func optionalJSON(w http.ResponseWriter, r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	return access.ReadJSON(w, r, v)
}
