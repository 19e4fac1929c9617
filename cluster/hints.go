// Hints: a broadcast that says "look again", coalesced for slow readers (§291, §292).

package cluster

import "sync"

// Hints tells any number of subscribers that something changed. It carries no
// data and never blocks the sender. The zero value is ready.
type Hints struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{}
}

// Subscribe returns a channel that holds one value after any number of changes
// since it was last read. stop releases it; it may be called more than once.
func (h *Hints) Subscribe() (hint <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = make(map[chan struct{}]struct{})
	}
	h.subs[ch] = struct{}{}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, ch)
	}
}

// Notify hints all subscribers.
func (h *Hints) Notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.subs {
		select {
		case ch <- struct{}{}:
		default: // the reader has not looked since the last hint, so it will see this change too
		}
	}
}
