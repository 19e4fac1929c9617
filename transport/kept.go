// Kept streams: a call that was answered leaves its stream to the next one.

package transport

import "sync"

// maxKept bounds the idle streams of one connection; each costs both sides a
// stream and the called side a waiting goroutine.
const maxKept = 4

// kept holds the idle call streams of one connection. A stream for every call
// would cost both sides, several times a second for each peer, a stream, a
// goroutine and packets for its two ends. They end with their connection. The
// zero value is ready.
type kept struct {
	mu   sync.Mutex
	idle []*Stream
}

// take gives out an idle stream of the family; nil when there is none.
func (k *kept) take(fam Family) *Stream {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range k.idle {
		if s.fam == fam {
			last := len(k.idle) - 1
			k.idle[i], k.idle[last] = k.idle[last], nil
			k.idle = k.idle[:last]
			return s
		}
	}
	return nil
}

// put keeps a stream; false when enough are kept.
func (k *kept) put(s *Stream) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.idle) >= maxKept {
		return false
	}
	k.idle = append(k.idle, s)
	return true
}
