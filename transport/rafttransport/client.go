// Client: requests to other nodes, one long-lived stream for each kind of traffic, one request on it at a time.

package rafttransport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/migrations/mutant"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/hashicorp/raft"
)

// laneKind separates traffic, so that none waits behind another's.
type laneKind uint8

const (
	laneHeartbeat laneKind = iota
	laneVote
	laneAppend
)

// Priorities of the streams: heartbeats and votes before entries before snapshots.
const (
	priorityUrgent   = 0
	priorityAppend   = 2
	prioritySnapshot = 6
)

func (k laneKind) priority() int8 {
	if k == laneAppend {
		return priorityAppend
	}
	return priorityUrgent
}

type laneKey struct {
	node fsm.NodeID
	kind laneKind
}

// lane is the stream to one node for one kind of traffic. The token in turn is
// held by the request under way.
type lane struct {
	turn   chan struct{}
	stream *transport.Stream // nil when it must be opened; owned by the holder of turn
}

// drop ends the stream; the next request opens another.
func (l *lane) drop() {
	if l.stream != nil {
		l.stream.Close()
		l.stream = nil
	}
}

// maxLanes bounds the lanes; a cluster has few voters, and a removed node's lane is cheap.
const maxLanes = 1024

func (t *Transport) lane(k laneKey) (*lane, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lanes == nil {
		return nil, errClosed
	}
	l := t.lanes[k]
	if l == nil {
		if len(t.lanes) >= maxLanes {
			return nil, fmt.Errorf("more than %d raft streams", maxLanes)
		}
		l = &lane{turn: make(chan struct{}, 1)}
		t.lanes[k] = l
	}
	return l, nil
}

// roundTrip sends a request and reads its answer within wait. sent is taken
// before the first byte of the answered attempt leaves. Raft's requests are
// harmless when repeated, so a stream that died unnoticed is replaced once.
func (t *Transport) roundTrip(id raft.ServerID, kind laneKind, wait time.Duration, req []byte, decode func([]byte) (raft.RPCHeader, error)) (sent time.Time, err error) {
	if !t.work.Begin() {
		return sent, errClosed
	}
	defer t.work.End()
	node, err := parseNode(id)
	if err != nil {
		return sent, err
	}
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	defer cancel()
	l, err := t.lane(laneKey{node, kind})
	if err != nil {
		return sent, err
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return sent, fmt.Errorf("raft request to %s: an earlier one is still under way: %w", node, context.Cause(ctx))
	}
	for {
		fresh := l.stream == nil
		sent, err = t.exchange(ctx, l, node, kind, req, decode)
		if err == nil || isRemote(err) {
			return sent, err
		}
		// Half an answer may be on its way: the stream is of no use any more.
		l.drop()
		if fresh || ctx.Err() != nil {
			return sent, err
		}
	}
}

// exchange makes one attempt on the lane's stream, opening it if needed.
func (t *Transport) exchange(ctx context.Context, l *lane, node fsm.NodeID, kind laneKind, req []byte, decode func([]byte) (raft.RPCHeader, error)) (sent time.Time, err error) {
	if l.stream == nil {
		if l.stream, err = t.cfg.Endpoint.OpenStream(ctx, node, transport.FamilyRaft); err != nil {
			return sent, err
		}
		l.stream.SetPriority(kind.priority())
	}
	sent = t.cfg.Now()
	if err := l.stream.WriteFrame(ctx, req); err != nil {
		return sent, err
	}
	b, err := l.stream.ReadFrame(ctx)
	if err != nil {
		return sent, err
	}
	h, err := decode(b)
	if err != nil {
		return sent, err
	}
	if err := checkHeader(h, l.stream.Peer()); err != nil {
		rejectLiar(l.stream, err)
		return sent, err
	}
	return sent, nil
}

// checkHeader requires that a message speaks for the certificate's holder and
// for nobody else (§57). The older fields in which Raft repeats the sender do
// not travel at all.
func checkHeader(h raft.RPCHeader, p transport.Peer) error {
	if mutant.Planted(mutant.HeaderUnchecked) {
		return nil
	}
	for _, id := range [][]byte{h.ID, h.Addr} {
		if string(id) != p.Subject.ID {
			return transport.Refuse(transport.CodeIDMismatch, "a raft header of %q on a connection of %q", id, p.Subject.ID)
		}
	}
	return nil
}

// rejectLiar closes the connection of a peer that spoke for another node.
func rejectLiar(s *transport.Stream, err error) {
	var e *transport.Error
	if errors.As(err, &e) {
		s.Reject(e)
	}
}
