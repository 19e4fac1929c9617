// Lifeline: what ties an attempt's executor to its lease: signs of life up, the deadline down.

package runner

import (
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/roles/store"
)

// Lifeline is safe for concurrent use. Without a watcher every question counts
// as its own answer: then the attempt works as long as its executor has not
// returned. A nil Lifeline has no deadline and counts nothing.
type Lifeline struct {
	mu       sync.Mutex
	work     uint64
	note     string
	deadline time.Time
	ask      func()
	extend   func(time.Time)
}

// NewLifeline returns one whose attempt must have been killed at deadline; zero: never.
func NewLifeline(deadline time.Time) *Lifeline { return &Lifeline{deadline: deadline} }

// Show counts one sign of life.
func (l *Lifeline) Show() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work++
}

// Deadline is when the attempt must have been killed; zero: never.
func (l *Lifeline) Deadline() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// watch makes ask and extend follow the attempt's heartbeats; neither may block.
// Nil ends that.
func (l *Lifeline) watch(ask func(), extend func(time.Time)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask, l.extend = ask, extend
	if extend != nil && !l.deadline.IsZero() {
		extend(l.deadline)
	}
}

// wait says what the attempt waits for; "" for nothing.
func (l *Lifeline) wait(note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note = store.Text(note, MaxNote)
}

// beat is what a heartbeat carries. It asks for the next sign of life.
func (l *Lifeline) beat() (work uint64, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ask == nil {
		l.work++
	} else {
		l.ask()
	}
	return l.work, l.note
}

// until moves the deadline.
func (l *Lifeline) until(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	if l.extend != nil {
		l.extend(t)
	}
}

// monoOf is an instant of CLOCK_MONOTONIC in nanoseconds, which all processes
// of the machine share; a zero time is one that never comes.
func monoOf(t time.Time) int64 {
	if t.IsZero() {
		return 1<<63 - 1
	}
	return trace.Mono(t)
}
