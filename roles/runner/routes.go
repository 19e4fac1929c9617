// HTTP routes of runs: submit, list, show. Any daemon serves them.

package runner

import (
	"net/http"
	"strconv"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// IdempotencyHeader carries the key under which a repeated submission returns the first run.
const IdempotencyHeader = "Idempotency-Key"

const (
	apiVersion = "forgeyard.dev/v1"
	kindRun    = "Run"
	kindRuns   = "RunList"
)

// RunDocument is the answer of POST /v1/runs and GET /v1/runs/{id}.
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
}

// Routes returns the routes of runs. wake is called after a submission has
// committed; it must not block, and may be nil.
func Routes(db Database, wake func()) []access.Route {
	if wake == nil {
		wake = func() {}
	}
	return []access.Route{
		{Method: http.MethodPost, Pattern: "/v1/runs", Permission: access.RunSubmit, Handler: submitHandler(db, wake)},
		{Method: http.MethodGet, Pattern: "/v1/runs", Permission: access.RunRead, Handler: listHandler(db)},
		{Method: http.MethodGet, Pattern: "/v1/runs/{id}", Permission: access.RunRead, Handler: showHandler(db)},
	}
}

func submitHandler(db Database, wake func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var spec RunSpec
		if err := access.ReadJSON(w, r, &spec); err != nil {
			access.WriteError(w, err)
			return
		}
		id, created, err := Submit(r.Context(), db, spec, r.Header.Get(IdempotencyHeader))
		if err != nil {
			access.WriteError(w, err)
			return
		}
		status := http.StatusOK
		if created {
			wake()
			status = http.StatusCreated
		}
		run, err := Get(r.Context(), db, id)
		if err != nil {
			// It is stored: an error here would make the client submit it twice.
			run = Run{ID: id, Name: spec.Name, State: RunRunning}
		}
		writeRun(w, status, run)
	}
}

func listHandler(db Database) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit := DefaultList
		if s := r.URL.Query().Get("limit"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 || n > MaxList {
				access.WriteError(w, access.ErrBadRequest.Because("limit: %.20q is not a number within 1 and %d", s, MaxList))
				return
			}
			limit = n
		}
		runs, err := List(r.Context(), db, limit)
		if err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, RunListDocument{APIVersion: apiVersion, Kind: kindRuns, Runs: runs})
	}
}

func showHandler(db Database) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run, err := Get(r.Context(), db, r.PathValue("id"))
		if err != nil {
			access.WriteError(w, err)
			return
		}
		writeRun(w, http.StatusOK, run)
	}
}

func writeRun(w http.ResponseWriter, status int, run Run) {
	access.WriteJSON(w, status, RunDocument{APIVersion: apiVersion, Kind: kindRun, Run: run})
}
