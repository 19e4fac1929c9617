// HTTP handlers of runs: submit, list, show, cancel.

package runner

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/events"
)

// ErrSourceMissing (FY-RUN-004): the run names a source that is not stored, or may be collected any moment.
var ErrSourceMissing = &access.Fault{
	Status: http.StatusUnprocessableEntity, Code: "FY-RUN-004", Message: "the run's source is not stored",
	Hint: "upload it with POST /v1/sources and submit within the hour",
}

// RunDocument is the answer of POST /v1/runs, GET /v1/runs/{id} and POST /v1/runs/{id}/cancel.
type RunDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Run
}

// RunListDocument is the answer of GET /v1/runs, newest run first.
type RunListDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Runs       []Run  `json:"runs"`
	Next       string `json:"next,omitempty"` // give it as "after" for the next page
}

func (a *API) submit(w http.ResponseWriter, r *http.Request) error {
	var spec RunSpec
	if err := access.ReadJSON(w, r, &spec); err != nil {
		return err
	}
	if err := spec.Validate(); err != nil {
		return ErrSpec.Because("%v", err)
	}
	if err := a.haveSource(r, spec.Source); err != nil {
		return err
	}
	queue := spec.normal().Queue
	if err := a.quota.admit(r.Context(), queue, len(spec.Jobs)); err != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(quotaRetry/time.Second)))
		return err
	}
	id, created, err := Submit(r.Context(), a.cfg.Store, spec, r.Header.Get(IdempotencyHeader))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		a.quota.took(queue, len(spec.Jobs))
		a.cfg.Notify(events.Work)
		status = http.StatusCreated
	}
	run, err := Get(r.Context(), a.cfg.Store, id)
	if err != nil {
		// It is stored: an error here would make the client submit it twice.
		run = Run{ID: id, Name: spec.Name, Queue: queue, Source: spec.Source, State: RunRunning}
	}
	w.Header().Set("Location", "/v1/runs/"+id)
	return writeRun(w, status, run)
}

// haveSource refuses a run whose source is not there, or was stored so long ago
// that the collector may take it before the run refers to it.
func (a *API) haveSource(r *http.Request, source string) error {
	if source == "" {
		return nil
	}
	if a.cfg.Blobs == nil {
		return ErrNoArtifactStore
	}
	d, err := artifact.ParseDigest(source)
	if err != nil {
		return ErrSpec.Because("source: %v", err)
	}
	b, err := a.cfg.Blobs.Stat(r.Context(), d)
	switch {
	case errors.Is(err, artifact.ErrMissing):
		return ErrSourceMissing.Because("the run's source %s is not stored", source)
	case err != nil:
		return err
	}
	referred, err := a.refersTo(r.Context(), d)
	if err != nil {
		return err
	}
	if !referred && time.Since(b.Modified) > artifact.Fresh {
		return ErrSourceMissing.Because("the run's source %s was uploaded too long ago", source)
	}
	return nil
}

func (a *API) list(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r)
	if err != nil {
		return err
	}
	runs, next, err := List(r.Context(), a.cfg.Store, f)
	if err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusOK, RunListDocument{APIVersion: apiVersion, Kind: kindRuns, Runs: runs, Next: next})
	return nil
}

func filterOf(r *http.Request) (Filter, error) {
	q := r.URL.Query()
	f := Filter{After: q.Get("after"), State: RunState(q.Get("state")), Queue: q.Get("queue")}
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > MaxList {
			return f, access.ErrBadRequest.Because("limit: %.20q is not a number within 1 and %d", s, MaxList)
		}
		f.Limit = n
	}
	if f.After != "" {
		if _, err := ulid.ParseStrict(f.After); err != nil {
			return f, access.ErrBadRequest.Because("after: %.64q is no run id", f.After)
		}
	}
	switch f.State {
	case "", RunRunning, RunSucceeded, RunFailed, RunCancelled:
	default:
		return f, access.ErrBadRequest.Because("state: %.20q is none of running, succeeded, failed, cancelled", string(f.State))
	}
	if f.Queue != "" && !plain(f.Queue, MaxQueue) {
		return f, access.ErrBadRequest.Because("queue: %.80q is no queue's name", f.Queue)
	}
	return f, nil
}

func (a *API) show(w http.ResponseWriter, r *http.Request) error {
	run, err := Get(r.Context(), a.cfg.Store, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeRun(w, http.StatusOK, run)
}

// CancelRequest is the optional body of POST /v1/runs/{id}/cancel.
type CancelRequest struct {
	Job    string `json:"job,omitempty"` // name of the one job to cancel; "" means the whole run
	Reason string `json:"reason,omitempty"`
}

func (a *API) cancel(w http.ResponseWriter, r *http.Request) error {
	var req CancelRequest
	if err := optionalJSON(w, r, &req); err != nil {
		return err
	}
	id := r.PathValue("id")
	marked, err := CancelRun(r.Context(), a.cfg.Store, id, req.Job, req.Reason)
	if marked > 0 {
		a.cfg.Notify(events.Cancels)
	}
	if err != nil {
		return err
	}
	run, err := Get(r.Context(), a.cfg.Store, id)
	if err != nil {
		return fmt.Errorf("the run is being cancelled, but cannot be read: %w", err)
	}
	return writeRun(w, http.StatusOK, run)
}

func writeRun(w http.ResponseWriter, status int, run Run) error {
	access.WriteJSON(w, status, RunDocument{APIVersion: apiVersion, Kind: kindRun, Run: run})
	return nil
}
