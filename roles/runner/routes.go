// HTTP handlers of runs: submit, list, show, cancel.

package runner

import (
	"context"
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

// ErrSourceMissing (FY-RUN-004): the run names a source that is not stored.
var ErrSourceMissing = &access.Fault{
	Status: http.StatusUnprocessableEntity, Code: "FY-RUN-004", Message: "the run's source is not stored",
	Hint: "upload it with POST /v1/sources and submit again",
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
	spec = spec.normal()
	key := r.Header.Get(IdempotencyHeader)
	if refused := a.admit(r.Context(), spec); refused != nil {
		// What was accepted before stays accepted: the queue may have filled up since, its own jobs among them.
		switch id, err := replayed(r.Context(), a.cfg.Store, spec, key); {
		case err != nil:
			return err
		case id != "":
			return a.answer(w, r, http.StatusOK, id, spec)
		}
		if errors.Is(refused, ErrQueueFull) {
			w.Header().Set("Retry-After", strconv.Itoa(int(quotaRetry/time.Second)))
		}
		return refused
	}
	id, created, err := Submit(r.Context(), a.cfg.Store, spec, key)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		a.quota.took(spec.Queue, len(spec.Jobs))
		a.cfg.Notify(events.Work)
		status = http.StatusCreated
	}
	return a.answer(w, r, status, id, spec)
}

// answer shows the run that a submission made or repeated.
func (a *API) answer(w http.ResponseWriter, r *http.Request, status int, id string, spec RunSpec) error {
	run, err := Get(r.Context(), a.cfg.Store, id)
	if err != nil {
		// It is stored: an error here would make the client submit it twice.
		run = Run{ID: id, Name: spec.Name, Queue: spec.Queue, Source: spec.Source, State: RunRunning}
	}
	w.Header().Set("Location", "/v1/runs/"+id)
	return writeRun(w, status, run)
}

// admit refuses a new run that could not start, or for which there is no room.
func (a *API) admit(ctx context.Context, spec RunSpec) error {
	if err := a.haveSource(ctx, spec.Source); err != nil {
		return err
	}
	return a.quota.admit(ctx, spec.Queue, len(spec.Jobs))
}

// haveSource refuses a run whose source is not there. One that was stored long
// ago is stored anew, or it might be collected before the run refers to it.
func (a *API) haveSource(ctx context.Context, source string) error {
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
	_, err = artifact.Renew(ctx, a.cfg.Blobs, d)
	if errors.Is(err, artifact.ErrMissing) {
		return ErrSourceMissing.Because("the run's source %s is not stored", source)
	}
	return err
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
		// Pages follow the text of the ids, so that another spelling of one would begin elsewhere.
		if id, err := ulid.ParseStrict(f.After); err != nil || id.String() != f.After {
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
