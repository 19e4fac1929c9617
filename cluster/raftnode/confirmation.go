// Confirmation of the view, counted from send times (§288): what this node can prove was current, and when.

package raftnode

import (
	"sync"
	"sync/atomic"
	"time"
)

// confirmation keeps the newest instant at which this node's view was provably
// current. It only rises: a proof about the past stays true.
//
// A follower's proof has two parts: a confirmed leader answered a ping sent at
// that instant, and this node has applied what the leader had applied when it
// answered. Answers whose index is still ahead wait here.
type confirmation struct {
	newest atomic.Pointer[time.Time]

	mu      sync.Mutex
	waiting []answer // by index, at most pingsInFlight
}

type answer struct {
	at    time.Time
	index uint64
}

// at is the newest proof; zero when there is none. Lock-free: guards read it on every use.
func (c *confirmation) at() time.Time {
	if t := c.newest.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// raise records a proof.
func (c *confirmation) raise(t time.Time) {
	for {
		old := c.newest.Load()
		if old != nil && !t.After(*old) || t.IsZero() {
			return
		}
		if c.newest.CompareAndSwap(old, &t) {
			return
		}
	}
}

// answered records a leader's answer; applied is this node's applied index now.
func (c *confirmation) answered(a answer, applied uint64) {
	if a.index <= applied {
		c.raise(a.at)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == pingsInFlight {
		c.waiting = c.waiting[1:]
	}
	c.waiting = append(c.waiting, a)
}

// appliedTo records the proofs that waited for this index.
func (c *confirmation) appliedTo(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.waiting[:0]
	for _, a := range c.waiting {
		if a.index <= index {
			c.raise(a.at)
		} else {
			rest = append(rest, a)
		}
	}
	c.waiting = rest
}
