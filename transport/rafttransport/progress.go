// Progress: what the followers acknowledged in the current term, and since when that proves leadership.

package rafttransport

import (
	"slices"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/hashicorp/raft"
)

// progress forgets everything when the term changes: an answer of an older
// term proves nothing about this one.
type progress struct {
	mu   sync.Mutex
	term uint64
	by   map[fsm.NodeID]ack
}

// ack is what one follower acknowledged in the term.
type ack struct {
	match uint64
	sent  time.Time // when the newest acknowledged append was sent
	read  time.Time // when the newest acknowledgement was read
}

func (p *progress) init() { p.by = map[fsm.NodeID]ack{} }

// acknowledged records a follower's success in the request's term.
func (p *progress) acknowledged(n fsm.NodeID, req *raft.AppendEntriesRequest, sent, read time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Term < p.term {
		return
	}
	if req.Term > p.term {
		p.term = req.Term
		clear(p.by)
	}
	a := p.by[n]
	a.match = max(a.match, req.PrevLogEntry+uint64(len(req.Entries)))
	// Heartbeats and entries travel on two streams, so answers may be read out of order.
	if sent.After(a.sent) {
		a.sent = sent
	}
	if read.After(a.read) {
		a.read = read
	}
	p.by[n] = a
}

// confirmed is the newest time at which a majority of the voters, counted by
// the send times of acknowledged appends, still followed this node. Counting
// from the reading of an answer would let answers buffered across a pause renew
// a leadership that is long over.
func (p *progress) confirmed(term uint64, voters []fsm.NodeID, self fsm.NodeID, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := make([]time.Time, 0, len(voters))
	for _, v := range voters {
		switch {
		case v == self:
			times = append(times, now)
		case p.term == term:
			times = append(times, p.by[v].sent)
		default:
			times = append(times, time.Time{})
		}
	}
	if len(times) == 0 {
		return time.Time{}
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) }) // newest first
	return times[len(times)/2]
}

func (p *progress) peers() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Peer, 0, len(p.by))
	for n, a := range p.by {
		out = append(out, Peer{Node: n, MatchIndex: a.match, LastContact: a.read})
	}
	slices.SortFunc(out, func(a, b Peer) int { return a.Node.Compare(b.Node) })
	return out
}
