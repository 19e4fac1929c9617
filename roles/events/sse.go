// Server-sent events: the outbox as a stream that a client can leave on one daemon and go on with on another (§112).

package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Bounds of the streams.
const (
	MaxClients = 1000             // streams of one daemon
	heartbeat  = 15 * time.Second // a silent stream says that it lives, and moves its client's cursor on
	batch      = 256              // events written before a flush
)

// ErrTooManyClients (FY-EVENT-001): this daemon serves MaxClients streams already.
var ErrTooManyClients = &access.Fault{
	Status: http.StatusServiceUnavailable, Code: "FY-EVENT-001", Message: fmt.Sprintf("this daemon serves %d event streams already", MaxClients),
	Hint: "follow another daemon",
}

// kindResync is the kind of an event that comes from no row: what should follow is gone, so read the state again and go
// on from here.
const kindResync = "resync"

// message is the data of one event on the wire.
type message struct {
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Run  string          `json:"run,omitempty"`
	Job  string          `json:"job,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Routes returns GET /v1/events (from now on, unless Last-Event-ID or ?after
// names a cursor) and GET /v1/runs/{id}/events (everything that is still there
// of that run, then what comes).
func Routes(h *Hub) []access.Route {
	return []access.Route{
		{Method: http.MethodGet, Pattern: "/v1/events", Permission: access.RunRead, Stream: true, Handler: handler(h, Head)},
		{Method: http.MethodGet, Pattern: "/v1/runs/{id}/events", Permission: access.RunRead, Stream: true, Handler: handler(h, Floor)},
	}
}

func handler(h *Hub, start func(context.Context, Database) (Cursor, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		run := r.PathValue("id")
		if _, err := ulid.ParseStrict(run); run != "" && err != nil {
			access.WriteError(w, access.ErrNoRun.Because("no run %.64q", run))
			return
		}
		leave, ok := h.follow()
		if !ok {
			access.WriteError(w, ErrTooManyClients)
			return
		}
		defer leave()
		cursor, err := resume(r)
		if errors.Is(err, errNoCursor) {
			cursor, err = start(r.Context(), h.db)
		}
		if err != nil {
			access.WriteError(w, err)
			return
		}
		s := stream{w: w, flush: http.NewResponseController(w)}
		if err := s.open(cursor); err != nil {
			return // the client is gone
		}
		s.serve(r.Context(), h, cursor, run)
	}
}

var errNoCursor = errors.New("no cursor was given")

// resume reads where the client left off: the header that browsers send by
// themselves when they reconnect, else the parameter.
func resume(r *http.Request) (Cursor, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		return Cursor{}, errNoCursor
	}
	c, err := ParseCursor(text)
	if err != nil {
		return c, access.ErrBadRequest.Because("the event cursor %.64q was not made by a daemon", text)
	}
	return c, nil
}

// stream writes events to one client. A write that cannot be finished in time
// ends it; the client comes back with its cursor.
type stream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

func (s stream) open(c Cursor) error {
	head := s.w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	return s.beat(c)
}

// serve returns when the client is gone or the server stops.
func (s stream) serve(ctx context.Context, h *Hub, after Cursor, run string) {
	for ctx.Err() == nil {
		wait, done := context.WithTimeout(ctx, heartbeat)
		page, err := h.next(wait, after, run, batch)
		done()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // PostgreSQL is away: the stream stays, and says so by a heartbeat only
			if s.beat(after) != nil || !sleep(ctx, failedIn) {
				return
			}
			continue
		case page.Gap:
			err = s.resync(page.Next)
		case len(page.Events) == 0:
			err = s.beat(page.Next)
		default:
			err = s.events(page)
		}
		if err != nil {
			return
		}
		after = page.Next
	}
}

func (s stream) events(page Page) error {
	for _, e := range page.Events {
		if err := s.event(e.Cursor, e.Kind, message{At: e.At, Kind: e.Kind, Run: e.Run, Job: e.Job, Data: e.Data}); err != nil {
			return err
		}
	}
	return s.flush.Flush()
}

func (s stream) resync(c Cursor) error {
	err := s.event(c, kindResync, map[string]string{"kind": kindResync, "reason": "events that should follow are no longer there; read the state again"})
	return errors.Join(err, s.flush.Flush())
}

func (s stream) event(c Cursor, kind string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	out := make([]byte, 0, len(b)+len(kind)+80)
	out = append(out, "id: "...)
	out = append(out, c.String()...)
	out = append(out, "\nevent: "...)
	out = append(out, kind...)
	out = append(out, "\ndata: "...)
	out = append(out, b...)
	_, err = s.w.Write(append(out, "\n\n"...))
	return err
}

// beat is a message without data: clients take its id and dispatch nothing.
func (s stream) beat(c Cursor) error {
	if _, err := s.w.Write([]byte("retry: 1000\nid: " + c.String() + "\n\n")); err != nil {
		return err
	}
	return s.flush.Flush()
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
