// HTTP routes: why the jobs of a run wait, and what waits in the queues. Any daemon serves them.

package scheduler

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Database is what the routes need of roles/store: they only read.
type Database interface {
	Batch(ctx context.Context, fill func(*pgx.Batch)) error
}

const apiVersion = "forgeyard.dev/v1"

// WhyDocument is the answer of GET /v1/runs/{id}/why.
type WhyDocument struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Run        string    `json:"run"`
	At         time.Time `json:"at"` // database time
	Scheduler  RoleState `json:"scheduler"`
	Jobs       []JobWhy  `json:"jobs"` // those that have not ended, in the run's order; none: the run has ended
	More       int       `json:"more"` // jobs that have not ended beyond those listed
}

// QueuesDocument is the answer of GET /v1/queues.
type QueuesDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Survey
}

// Routes returns the read-only routes of the scheduler. authority may be nil
// in a process that knows nothing of roles.
func Routes(db Database, authority Authority) []access.Route {
	if authority == nil {
		authority = unknownAuthority{}
	}
	board := &board{db: db, now: time.Now}
	return []access.Route{
		{Method: http.MethodGet, Pattern: "/v1/runs/{id}/why", Permission: access.RunRead, Handler: whyHandler(db, authority)},
		{Method: http.MethodGet, Pattern: "/v1/queues", Permission: access.RunRead, Handler: queuesHandler(board)},
	}
}

type unknownAuthority struct{}

func (unknownAuthority) Scheduler() RoleState {
	return RoleState{Reason: "this process does not take part in the coordination"}
}

func whyHandler(db Database, authority Authority) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		doc, err := Why(r.Context(), db, authority.Scheduler(), r.PathValue("id"))
		if err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, doc)
	}
}

func queuesHandler(b *board) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := b.read(r.Context())
		if err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, QueuesDocument{APIVersion: apiVersion, Kind: "QueueList", Survey: found})
	}
}

// board keeps the last survey for as long as surveyShare times what it cost,
// and at least a second: many pollers cost what one costs.
type board struct {
	db  Database
	now func() time.Time

	mu    sync.Mutex // one survey at a time
	last  Survey
	fresh time.Time // until when last may be shown
}

func (b *board) read(ctx context.Context) (Survey, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	began := b.now()
	if began.Before(b.fresh) {
		return b.last, nil
	}
	var found Survey
	if err := b.db.Batch(ctx, func(q *pgx.Batch) { queueSurvey(q, defaultAgentTTL, &found) }); err != nil {
		return Survey{}, err
	}
	b.last, b.fresh = found, b.now().Add(max(time.Second, surveyShare*b.now().Sub(began)))
	return found, nil
}
