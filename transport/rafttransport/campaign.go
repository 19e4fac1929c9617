// What early election needs of the transport: when a leader was last heard, and a TimeoutNow to this node itself.

package rafttransport

import (
	"context"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/hashicorp/raft"
)

// heard remembers when each node last sent entries, a heartbeat or a part of a snapshot.
type heard struct {
	mu sync.Mutex
	at map[fsm.NodeID]time.Time
}

func (h *heard) init() { h.at = map[fsm.NodeID]time.Time{} }

func (h *heard) from(n fsm.NodeID, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[n] = at
}

func (h *heard) last(n fsm.NodeID) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[n]
}

// Heard is when the newest append of a node, or part of its snapshot, was read
// here, whatever became of it; zero when there was none. It says that the node
// lives before Raft's main loop, which may wait for a disk, has seen the append.
func (t *Transport) Heard(n fsm.NodeID) time.Time { return t.heard.last(n) }

// Campaign makes this node stand for election at once, as if its leader had told
// it to. It returns when Raft has taken the order; when it is busy until ctx
// ends, nothing happens.
func (t *Transport) Campaign(ctx context.Context) error {
	if !t.work.Begin() {
		return errClosed
	}
	defer t.work.End()
	answers := make(chan raft.RPCResponse, 1)
	order := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self), Addr: []byte(t.self),
	}}
	select {
	case t.rpcs <- raft.RPC{Command: order, RespChan: answers}:
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return errClosed
	}
	select {
	case a := <-answers:
		return a.Error
	case <-t.ctx.Done():
		return errClosed
	}
}
