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
// A proof has two parts: something answered what was sent at that instant (a
// majority of voters a leader, a confirmed leader a follower), and this node has
// applied what was committed then. Answers whose index is still ahead wait here.
type confirmation struct {
	newest atomic.Pointer[time.Time]

	mu      sync.Mutex
	waiting []answer // in order of arrival, at most pingsInFlight, one for each index
	applied uint64   // the highest index given to appliedTo
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

// answered records an answer; applied is the index this node had applied to
// before. The answers that wait longest stay: their index is reached first, so
// steady load cannot keep every proof out.
func (c *confirmation) answered(a answer, applied uint64) {
	if a.index <= applied || a.at.IsZero() {
		c.raise(a.at)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.index <= c.applied {
		c.raise(a.at) // reached since the caller looked
		return
	}
	for i, w := range c.waiting {
		if w.index == a.index || i == pingsInFlight-1 {
			if a.at.After(w.at) {
				c.waiting[i] = a
			}
			return
		}
	}
	c.waiting = append(c.waiting, a)
}

// appliedTo records the proofs that waited for this index.
func (c *confirmation) appliedTo(index uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied = max(c.applied, index)
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
