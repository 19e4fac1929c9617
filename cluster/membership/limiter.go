// Bounds join attempts, of each source and of all together (§219).

package membership

import (
	"sync"
	"time"
)

const (
	joinsPerSource = 10 // a minute
	joinsInAll     = 120
	joinWindow     = time.Minute
	maxSources     = 1024
)

// limiter counts attempts in fixed windows.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	opened  time.Time
	all     int
	sources map[string]int
}

// allow counts one attempt of a source; false when a bound is reached.
func (l *limiter) allow(source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); l.sources == nil || now.Sub(l.opened) >= joinWindow {
		l.opened, l.all, l.sources = now, 0, map[string]int{}
	}
	if l.all >= joinsInAll || l.sources[source] >= joinsPerSource || len(l.sources) >= maxSources {
		return false
	}
	l.all++
	l.sources[source]++
	return true
}
