// Restart budget and back-off: how often something may fail and how long to wait in between.

package actors

import (
	"math/rand/v2"
	"time"
)

// Budget is how many restarts are allowed within a sliding window.
type Budget struct {
	Restarts int
	Window   time.Duration
}

// failures counts the failures of one actor or loop against a budget. It is not
// safe for concurrent use.
type failures struct {
	budget Budget
	times  []time.Time // within the window, oldest first
}

// add notes a failure and reports whether another restart is within the budget.
func (f *failures) add(now time.Time) bool {
	f.times = append(f.times, now)
	for len(f.times) > 0 && now.Sub(f.times[0]) >= f.budget.Window {
		f.times = f.times[1:]
	}
	return len(f.times) <= f.budget.Restarts
}

func (f *failures) reset() { f.times = nil }

// Backoff doubles a wait from First up to Max.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

// wait is the pause before attempt n (0 for the first retry), with a jitter of
// ±20 % so that things which failed together do not come back together.
func (b Backoff) wait(n int) time.Duration {
	d := b.First
	for range n {
		if d >= b.Max/2 {
			d = b.Max
			break
		}
		d *= 2
	}
	return time.Duration(float64(min(d, b.Max)) * (0.8 + 0.4*rand.Float64()))
}
