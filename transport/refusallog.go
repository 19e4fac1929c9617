// What is said about refusals: a peer that tries again and again must not fill the log.

package transport

import (
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/transport/pki"
)

const (
	// sayAgain is how long one peer's refusal for one reason is not said again.
	sayAgain = 10 * time.Second
	// maxSaid bounds what is said, and remembered, within that time: who has no
	// valid certificate can name any subject.
	maxSaid = 256
)

type refusalKey struct {
	peer   pki.Subject
	code   Code
	byPeer bool
}

// refusalLog remembers what was said lately. The zero value is ready.
type refusalLog struct {
	mu     sync.Mutex
	said   map[refusalKey]time.Time
	unsaid int
}

// note reports whether a refusal is to be said now, and how many of all peers were not since the last that was.
func (l *refusalLog) note(k refusalKey, now time.Time) (unsaid int, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = map[refusalKey]time.Time{}
	}
	if len(l.said) >= maxSaid {
		for k, at := range l.said {
			if now.Sub(at) >= sayAgain {
				delete(l.said, k)
			}
		}
	}
	at, known := l.said[k]
	if known && now.Sub(at) < sayAgain || !known && len(l.said) >= maxSaid {
		l.unsaid++
		return 0, false
	}
	l.said[k] = now
	unsaid, l.unsaid = l.unsaid, 0
	return unsaid, true
}
