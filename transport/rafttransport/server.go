// Server: requests of other nodes. Who the sender is comes from its certificate; its headers must agree.

package rafttransport

import (
	"context"
	"errors"
	"io"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/hashicorp/raft"
)

// serve answers one stream of requests, in order, until it ends.
func (t *Transport) serve(ctx context.Context, from transport.Peer, s *transport.Stream) {
	if !t.work.Begin() {
		return
	}
	defer t.work.End()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	for {
		b, err := s.ReadFrame(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				t.log.Debug("raft stream ended", "peer", from.Subject.ID, "error", err)
			}
			return
		}
		if err := t.request(ctx, from, s, b); err != nil {
			if ctx.Err() == nil {
				t.log.Warn("raft stream refused", "peer", from.Subject.ID, "error", err)
			}
			return
		}
	}
}

// request handles one request. An error ends the stream.
func (t *Transport) request(ctx context.Context, from transport.Peer, s *transport.Stream, b []byte) error {
	q, err := decodeRequest(b)
	if err != nil {
		return err
	}
	if err := checkHeader(q.GetRPCHeader(), from); err != nil {
		rejectLiar(s, err)
		return err
	}
	answers := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: q, RespChan: answers}
	var data *chunks
	switch q := q.(type) {
	case *raft.AppendEntriesRequest:
		t.heard.from(from.Node(), t.cfg.Now())
		if isHeartbeat(q) {
			s.SetPriority(priorityUrgent)
			return t.answer(ctx, s, t.beat(ctx, rpc, answers))
		}
		s.SetPriority(priorityAppend)
	case *raft.InstallSnapshotRequest:
		s.SetPriority(prioritySnapshot)
		t.heard.from(from.Node(), t.cfg.Now())
		data = &chunks{ctx: ctx, s: s, idle: t.cfg.SnapshotIdle, left: q.Size, came: func() { t.heard.from(from.Node(), t.cfg.Now()) }}
		rpc.Reader = data
	default:
		s.SetPriority(priorityUrgent)
	}
	a := t.ask(ctx, rpc, answers)
	if data != nil && a.Error == nil {
		// Raft may answer without reading to the end; what is left would be taken for the next request.
		if err := data.drain(); err != nil {
			return err
		}
	}
	return t.answer(ctx, s, a)
}

// beat answers a heartbeat off raft's main loop, which may wait for a disk.
func (t *Transport) beat(ctx context.Context, rpc raft.RPC, answers <-chan raft.RPCResponse) raft.RPCResponse {
	t.mu.Lock()
	fast := t.heartbeat
	t.mu.Unlock()
	if fast == nil {
		return t.ask(ctx, rpc, answers)
	}
	fast(rpc)
	select {
	case a := <-answers:
		return a
	case <-ctx.Done(): // raft that shuts down answers nothing
		return raft.RPCResponse{Error: errClosed}
	}
}

// ask hands a request to raft's main loop and waits for the answer.
func (t *Transport) ask(ctx context.Context, rpc raft.RPC, answers <-chan raft.RPCResponse) raft.RPCResponse {
	select {
	case t.rpcs <- rpc:
	case <-ctx.Done():
		return raft.RPCResponse{Error: errClosed}
	}
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return raft.RPCResponse{Error: errClosed}
	}
}

func (t *Transport) answer(ctx context.Context, s *transport.Stream, a raft.RPCResponse) error {
	b, err := encodeAnswer(a, t.self)
	if err != nil {
		return err
	}
	return s.WriteFrame(ctx, b)
}
