// Coalescing change hints: a slow reader loses hints, never blocks the writer, and reads the newest view when it looks.

package raftnode

import "sync"

type hints struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

func newHints() *hints { return &hints{subs: map[chan struct{}]struct{}{}} }

// subscribe returns a channel that holds at most one pending hint.
func (h *hints) subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	h.subs[c] = struct{}{}
	h.mu.Unlock()
	return c, func() {
		h.mu.Lock()
		delete(h.subs, c)
		h.mu.Unlock()
	}
}

func (h *hints) send() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
