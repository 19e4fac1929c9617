// The library's in-memory transport with what RaftTransport adds.

package raftnode

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

// memRaft is the in-memory Raft transport with acknowledgements recorded.
type memRaft struct {
	*raft.InmemTransport
	self fsm.NodeID
	mu   sync.Mutex
	ack  map[fsm.NodeID]rafttransport.Peer
	sent map[fsm.NodeID]acknowledged

	noHeir chan struct{} // holds every TimeoutNow up until it is closed; nil: none
	unfit  error         // what every TimeoutNow is answered with; nil: what the heir says
}

func (m *memRaft) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (m *memRaft) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	start := time.Now()
	if err := m.InmemTransport.AppendEntries(id, to, req, resp); err != nil {
		return err
	}
	if !resp.Success {
		return nil
	}
	node, err := fsm.ParseNodeID(string(id))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.ack[node]
	p.Node, p.LastContact = node, time.Now()
	if n := len(req.Entries); n > 0 {
		p.MatchIndex = req.Entries[n-1].Index
	} else {
		p.MatchIndex = max(p.MatchIndex, req.PrevLogEntry)
	}
	m.ack[node] = p
	m.sent[node] = acknowledged{term: req.Term, at: start}
	return nil
}

func (m *memRaft) Confirmed(term uint64, voters []fsm.NodeID) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	var times []time.Time
	for _, v := range voters {
		if a := m.sent[v]; v == m.self {
			times = append(times, time.Now())
		} else if a.term == term {
			times = append(times, a.at)
		}
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	if need := len(voters)/2 + 1; len(times) >= need {
		return times[need-1]
	}
	return time.Time{}
}

func (m *memRaft) Heard(fsm.NodeID) time.Time { return time.Time{} }

func (m *memRaft) Campaign(context.Context) error {
	order := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	return m.InmemTransport.TimeoutNow(serverID(m.self), serverAddress(m.self), order, &raft.TimeoutNowResponse{})
}

func (m *memRaft) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if m.noHeir != nil {
		<-m.noHeir
	}
	if m.unfit != nil {
		return m.unfit
	}
	return m.InmemTransport.TimeoutNow(id, to, req, resp)
}

func (m *memRaft) Peers() []rafttransport.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []rafttransport.Peer
	for _, p := range m.ack {
		out = append(out, p)
	}
	return out
}
