// How long an operation has been under way, counted only while this process ran.

package raftnode

import (
	"sync/atomic"
	"time"
)

// timer holds the start of the operation under way; there is one of a kind at a time.
type timer struct{ since atomic.Pointer[time.Time] }

func (t *timer) start(now time.Time) { t.since.Store(&now) }

// keepOn starts it, unless it runs already.
func (t *timer) keepOn(now time.Time) { t.since.CompareAndSwap(nil, &now) }

func (t *timer) stop() { t.since.Store(nil) }

// lasts is how long the operation under way has been; 0 when there is none.
func (t *timer) lasts(now time.Time) time.Duration {
	if since := t.since.Load(); since != nil {
		return now.Sub(*since)
	}
	return 0
}

// stall adds up how long a timer's operation was seen under way, look by look.
// A look counts for at most its longest gap: a process that was paused, or
// starved of the CPU, must not take that time for a hung disk when it wakes.
type stall struct {
	timer     *timer
	operation *time.Time // which one was seen last; the pointer is its identity
	last      time.Time
	total     time.Duration
}

// look returns for how long the operation under way has been seen; 0 when there is none.
func (s *stall) look(now time.Time, longest time.Duration) time.Duration {
	if op := s.timer.since.Load(); op == nil {
		s.operation, s.total = nil, 0
	} else {
		if op != s.operation {
			s.operation, s.last, s.total = op, *op, 0
		}
		s.total += min(now.Sub(s.last), longest)
		s.last = now
	}
	return s.total
}
