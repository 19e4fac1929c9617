// Hub: one reader of the outbox per daemon, for however many clients follow it.
//
// Clients pull: each has its own cursor and takes what lies after it, from the
// ring while it is recent and from the outbox when it is not. So nothing is
// queued for a client, and one that does not read costs its own connection only.

package events

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Bounds of the hub.
const (
	ringSize  = 4096                   // events kept in memory
	pageSize  = 512                    // events read in one go
	pollEvery = time.Second            // without being woken
	pendingIn = 20 * time.Millisecond  // the next look when a transaction held something back
	failedIn  = 500 * time.Millisecond // the next try when the outbox could not be read
)

// Hub reads the outbox while somebody follows it.
type Hub struct {
	db   Database
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	clients int
	ring    []Event // ascending
	from    Cursor  // the ring holds everything after this ...
	upto    Cursor  // ... up to this
	grown   chan struct{}
}

// NewHub makes a hub; Run it. A bus wakes it.
func NewHub(db Database, bus *Bus, logger *slog.Logger) *Hub {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &Hub{db: db, log: logger, wake: make(chan struct{}, 1), grown: make(chan struct{})}
	bus.Subscribe(Happens, h.ask)
	return h
}

// ask asks for a look now.
func (h *Hub) ask() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Clients is how many follow the hub now.
func (h *Hub) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clients
}

// Run reads until ctx ends. Without a client it reads nothing.
func (h *Hub) Run(ctx context.Context) error {
	for {
		next := pollEvery
		if h.Clients() > 0 {
			next = h.look(ctx)
		}
		var t <-chan time.Time
		if h.Clients() > 0 {
			t = time.After(next)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-t:
		}
	}
}

// look takes what is new into the ring and says when to look again.
func (h *Hub) look(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		h.mu.Lock()
		after := h.upto
		h.mu.Unlock()
		page, err := Read(ctx, h.db, after, "", pageSize)
		if err != nil {
			if ctx.Err() == nil {
				h.log.Debug("the outbox cannot be read", "err", err)
			}
			return failedIn
		}
		h.mu.Lock()
		switch {
		case h.upto != after: // emptied meanwhile: what was read does not follow what the ring holds
			h.mu.Unlock()
			continue
		case page.Gap: // another history, or nobody looked for days: clients find their own way
			h.ring, h.from, h.upto = nil, page.Next, page.Next
		default:
			h.keep(page)
		}
		if page.Gap || len(page.Events) > 0 {
			close(h.grown)
			h.grown = make(chan struct{})
		}
		h.mu.Unlock()
		if len(page.Events) < pageSize {
			if page.More {
				return pendingIn
			}
			return pollEvery
		}
	}
	return pollEvery
}

func (h *Hub) keep(page Page) {
	h.ring, h.upto = append(h.ring, page.Events...), page.Next
	if n := len(h.ring) - ringSize; n > 0 {
		h.from = h.ring[n-1].Cursor
		h.ring = append(h.ring[:0:0], h.ring[n:]...)
	}
}

// follow counts a client in; leave counts it out. ok is false, and leave nil,
// when MaxClients follow already.
func (h *Hub) follow() (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients >= MaxClients {
		return nil, false
	}
	h.clients++
	if h.clients == 1 { // nobody has looked for a while: begin where the outbox ends now
		h.ring, h.from, h.upto = nil, Cursor{}, Cursor{}
	}
	h.ask()
	return func() {
		h.mu.Lock()
		h.clients--
		h.mu.Unlock()
	}, true
}

// recent returns what the ring holds after a cursor, and a channel that closes
// when there is more. ok is false when the ring does not reach back that far.
func (h *Hub) recent(after Cursor, run string, limit int) (page Page, grown <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.upto == (Cursor{}) || !after.follows(h.upto) || after.before(h.from) {
		return Page{}, h.grown, false
	}
	page.Next = after
	lo, hi := 0, len(h.ring)
	for lo < hi { // the first event after the cursor
		if mid := (lo + hi) / 2; after.before(h.ring[mid].Cursor) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	for _, e := range h.ring[lo:] {
		if run == "" || e.Run == run {
			if len(page.Events) == limit {
				page.More = true
				return page, h.grown, true
			}
			page.Events = append(page.Events, e)
		}
		page.Next = e.Cursor
	}
	if page.Next.before(h.upto) {
		page.Next = h.upto
	}
	return page, h.grown, true
}

// next returns the next events for a client, waiting for them until ctx ends,
// which is no error. An empty page without a gap means that the cursor moved on
// past what is of no interest.
func (h *Hub) next(ctx context.Context, after Cursor, run string, limit int) (Page, error) {
	for {
		page, grown, recent := h.recent(after, run, limit)
		var again <-chan time.Time
		if !recent {
			var err error
			if page, err = Read(ctx, h.db, after, run, limit); err != nil {
				return page, err
			}
			again = time.After(pendingIn) // the ring starts about here, or soon will
		}
		if len(page.Events) > 0 || page.Gap {
			return page, nil
		}
		after = page.Next
		select {
		case <-ctx.Done():
			return page, nil
		case <-grown:
		case <-again:
		}
	}
}
