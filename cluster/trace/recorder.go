// An in-memory trace for tests.

package trace

import (
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Recorder keeps a trace in memory. The zero value is ready.
type Recorder struct {
	mu     sync.Mutex
	events []Event
}

// Trace appends the event.
func (r *Recorder) Trace(e Event) {
	if e.Mono == 0 {
		e.Mono = Mono(time.Now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns a copy of what was traced so far, in order.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Of returns the events of one role and epoch, in order.
func (r *Recorder) Of(role fsm.Role, epoch fsm.Epoch) []Event {
	return Select(r.Events(), role, epoch)
}

// Select keeps the events of one role and epoch.
func Select(events []Event, role fsm.Role, epoch fsm.Epoch) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return e.Role != role || e.Epoch != epoch
	})
}

// Kinds lists the kinds of events in order.
func Kinds(events []Event) []Kind {
	kinds := make([]Kind, len(events))
	for i, e := range events {
		kinds[i] = e.Kind
	}
	return kinds
}
