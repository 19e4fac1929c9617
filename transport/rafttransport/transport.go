// Package rafttransport carries hashicorp/raft over the raft family of a transport.Endpoint (§54).
package rafttransport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/tasks"
	"github.com/hashicorp/raft"
)

// Endpoint is what the Raft transport needs of a transport.Endpoint.
type Endpoint interface {
	OpenStream(ctx context.Context, to fsm.NodeID, fam transport.Family) (*transport.Stream, error)
	HandleStream(fam transport.Family, h transport.StreamHandler)
}

// Config describes a Raft transport. Zero durations take their defaults.
type Config struct {
	Endpoint Endpoint
	Self     fsm.NodeID
	// HeartbeatTimeout and ElectionTimeout are Raft's own (500 ms each). One
	// heartbeat waits at most the first for its answer, a vote the second, and
	// TimeoutNow half the second: a handover that hangs for longer than an
	// election would leave the leader refusing every write.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	// AppendTimeout bounds one AppendEntries (5 s); it must outlast a slow fsync of the follower.
	AppendTimeout time.Duration
	// SnapshotIdle is how long a snapshot may make no progress (10 s). Its whole
	// transfer has no bound, so that a slow link still completes one.
	SnapshotIdle time.Duration
	// SnapshotRestore bounds the wait for the follower to restore what it received (60 s).
	SnapshotRestore time.Duration
	Logger          *slog.Logger
	Now             func() time.Time
}

// Transport is a raft.Transport whose addresses are node ids. It refuses every
// message whose header does not carry the id of the sender's certificate.
type Transport struct {
	cfg  Config
	self raft.ServerAddress
	log  *slog.Logger

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	rpcs   chan raft.RPC
	work   tasks.Group // calls and handlers under way

	mu        sync.Mutex
	heartbeat func(raft.RPC)
	lanes     map[laneKey]*lane

	progress progress
	heard    heard
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// New starts serving the raft family of the endpoint.
func New(cfg Config) *Transport {
	def(&cfg.HeartbeatTimeout, 500*time.Millisecond)
	def(&cfg.ElectionTimeout, 500*time.Millisecond)
	def(&cfg.AppendTimeout, 5*time.Second)
	def(&cfg.SnapshotIdle, 10*time.Second)
	def(&cfg.SnapshotRestore, time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Transport{
		cfg: cfg, self: raft.ServerAddress(cfg.Self.String()), log: cfg.Logger,
		rpcs: make(chan raft.RPC), lanes: map[laneKey]*lane{},
	}
	t.progress.init()
	t.heard.init()
	t.ctx, t.cancel = context.WithCancel(context.Background())
	cfg.Endpoint.HandleStream(transport.FamilyRaft, t.serve)
	return t
}

func def(v *time.Duration, d time.Duration) {
	if *v <= 0 {
		*v = d
	}
}

// Consumer gives the requests of other nodes.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpcs }

// LocalAddr is this node's id.
func (t *Transport) LocalAddr() raft.ServerAddress { return t.self }

// EncodePeer writes an address, which is a node id.
func (t *Transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer reads an address.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler sets the function that answers heartbeats without the main loop.
func (t *Transport) SetHeartbeatHandler(cb func(raft.RPC)) {
	t.mu.Lock()
	t.heartbeat = cb
	t.mu.Unlock()
}

// AppendEntriesPipeline is not offered: with the library's defaults a pipeline
// can deadlock after a follower's disk stalls, and then replicates nothing while
// heartbeats go on. One request at a time costs a round trip per batch.
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries, or a heartbeat on a stream of its own, and records what the follower confirmed.
func (t *Transport) AppendEntries(id raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	kind, wait := laneAppend, t.cfg.AppendTimeout
	if isHeartbeat(req) {
		kind, wait = laneHeartbeat, t.cfg.HeartbeatTimeout
	}
	sent, err := t.roundTrip(id, kind, wait, encodeAppend(req), func(b []byte) (raft.RPCHeader, error) {
		return decodeAppendResponse(b, resp)
	})
	if err != nil {
		return err
	}
	if resp.Success && resp.Term == req.Term {
		node, err := fsm.ParseNodeID(string(id))
		if err != nil {
			return err
		}
		t.progress.acknowledged(node, req, sent, t.cfg.Now())
	}
	return nil
}

// RequestVote asks for a vote.
func (t *Transport) RequestVote(id raft.ServerID, _ raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	_, err := t.roundTrip(id, laneVote, t.cfg.ElectionTimeout, encodeVote(req), func(b []byte) (raft.RPCHeader, error) {
		return decodeVoteResponse(b, resp)
	})
	return err
}

// RequestPreVote asks whether a vote would be given, without raising the term.
func (t *Transport) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	_, err := t.roundTrip(id, laneVote, t.cfg.ElectionTimeout, encodePreVote(req), func(b []byte) (raft.RPCHeader, error) {
		return decodePreVoteResponse(b, resp)
	})
	return err
}

// TimeoutNow tells a node to campaign at once (leadership transfer).
func (t *Transport) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	_, err := t.roundTrip(id, laneVote, t.cfg.ElectionTimeout/2, encodeTimeoutNow(req), func(b []byte) (raft.RPCHeader, error) {
		return decodeTimeoutNowResponse(b, resp)
	})
	return err
}

// Confirmed is the send time of the newest append that a majority of the voters
// acknowledged in this term; this node counts as acknowledging at every time.
// Zero when there is none. It is meaningful on the leader of the term only.
func (t *Transport) Confirmed(term uint64, voters []fsm.NodeID) time.Time {
	return t.progress.confirmed(term, voters, t.cfg.Self, t.cfg.Now())
}

// Peer is what this node, as the leader, knows of another node's log.
type Peer struct {
	Node        fsm.NodeID
	MatchIndex  uint64    // highest index known to equal the leader's
	LastContact time.Time // when its last acknowledgement was read (monotonic)
}

// Peers reports the nodes that acknowledged an append in the newest term in which this node sent one.
func (t *Transport) Peers() []Peer { return t.progress.peers() }

// Close ends every call under way and waits for the handlers of incoming
// streams. The endpoint stays open. Calling it again does nothing.
func (t *Transport) Close() error {
	t.cancel()
	t.mu.Lock()
	lanes := t.lanes
	t.lanes = nil
	t.mu.Unlock()
	t.work.Wait()
	for _, l := range lanes {
		l.drop()
	}
	return nil
}

// errClosed is returned after Close.
var errClosed = errors.New("raft transport closed")

// parseNode reads the node id that raft uses as server id and address.
func parseNode(id raft.ServerID) (fsm.NodeID, error) { return fsm.ParseNodeID(string(id)) }

// InstallSnapshot streams a snapshot on a stream of its own, after all other
// traffic in priority. It fails when no progress is made for SnapshotIdle.
func (t *Transport) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if !t.work.Begin() {
		return errClosed
	}
	defer t.work.End()
	return t.sendSnapshot(id, req, resp, data)
}
