// A node's certificate speaks for that node only, in every message and in every answer (§57, §216).

package rafttransport_test

import (
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// heard waits for a refusal of an identity that was seen.
func heard(t *testing.T, p *peer) refusal {
	t.Helper()
	select {
	case r := <-p.refused:
		return r
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no refusal was reported")
		return refusal{}
	}
}

func TestSenderImpersonation(t *testing.T) {
	victim := newID()
	lie := []byte(victim.String())
	type call func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error
	addr := func(id raft.ServerID) raft.ServerAddress { return raft.ServerAddress(id) }
	calls := map[string]call{
		"heartbeat": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.AppendEntries(id, addr(id), &raft.AppendEntriesRequest{RPCHeader: h, Term: 9}, &raft.AppendEntriesResponse{})
		},
		"append": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.AppendEntries(id, addr(id), &raft.AppendEntriesRequest{RPCHeader: h, Term: 9, PrevLogEntry: 1}, &raft.AppendEntriesResponse{})
		},
		"vote": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.RequestVote(id, addr(id), &raft.RequestVoteRequest{RPCHeader: h, Term: 9}, &raft.RequestVoteResponse{})
		},
		"pre-vote": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.RequestPreVote(id, addr(id), &raft.RequestPreVoteRequest{RPCHeader: h, Term: 9}, &raft.RequestPreVoteResponse{})
		},
		"timeout now": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.TimeoutNow(id, addr(id), &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
		},
		"snapshot": func(tr *rafttransport.Transport, id raft.ServerID, h raft.RPCHeader) error {
			return tr.InstallSnapshot(id, addr(id), &raft.InstallSnapshotRequest{RPCHeader: h, Term: 9}, &raft.InstallSnapshotResponse{}, nil)
		},
	}
	honest := func(p *peer) []byte { return []byte(p.id.String()) }
	headers := map[string]func(p *peer) raft.RPCHeader{
		"id":      func(p *peer) raft.RPCHeader { return raft.RPCHeader{ProtocolVersion: 3, ID: lie, Addr: honest(p)} },
		"address": func(p *peer) raft.RPCHeader { return raft.RPCHeader{ProtocolVersion: 3, ID: honest(p), Addr: lie} },
		"no id":   func(p *peer) raft.RPCHeader { return raft.RPCHeader{ProtocolVersion: 3} },
	}
	ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
	target := open(t, ca, dir, newID(), loopback(t))
	tr := rafttransport.New(rafttransport.Config{Endpoint: target.Endpoint, Self: target.id})
	defer func() {
		require.NoError(t, tr.Close())
		require.NoError(t, target.Close())
	}()
	for name, c := range calls {
		for field, h := range headers {
			t.Run(name+" "+field, func(t *testing.T) {
				liar := open(t, ca, dir, newID(), loopback(t))
				own := rafttransport.New(rafttransport.Config{Endpoint: liar.Endpoint, Self: liar.id, ElectionTimeout: 10 * time.Second, HeartbeatTimeout: 10 * time.Second})
				defer func() {
					require.NoError(t, own.Close())
					require.NoError(t, liar.Close())
				}()
				called := make(chan error, 1)
				go func() { called <- c(own, raft.ServerID(target.id.String()), h(liar)) }()
				select {
				case err := <-called:
					require.Error(t, err)
				case rpc := <-tr.Consumer():
					require.Failf(t, "raft heard the liar", "%T", rpc.Command)
				}
				for _, side := range []*peer{target, liar} {
					r := heard(t, side)
					require.Equal(t, transport.CodeIDMismatch, r.err.Code)
					require.Equal(t, side == liar, r.err.Remote)
					require.Contains(t, r.err.Message, liar.id.String())
				}
				select {
				case rpc := <-tr.Consumer():
					require.Failf(t, "raft heard the liar", "%T", rpc.Command)
				default:
				}
			})
		}
	}
}

// TestAnswerImpersonation: also whoever answers speaks for itself only.
func TestAnswerImpersonation(t *testing.T) {
	ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
	l := leading(open(t, ca, dir, newID(), loopback(t)), 10*time.Second)
	defer l.stop(t)
	p := open(t, ca, dir, newID(), loopback(t))
	tr := rafttransport.New(rafttransport.Config{Endpoint: p.Endpoint, Self: p.id})
	lie := []byte(newID().String())
	tr.SetHeartbeatHandler(func(rpc raft.RPC) {
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: lie, Addr: lie}, Term: 1, Success: true}, nil)
	})
	defer func() {
		require.NoError(t, tr.Close())
		require.NoError(t, p.Close())
	}()
	require.ErrorIs(t, l.append(p.id, 1, 0, 0), &transport.Error{Code: transport.CodeIDMismatch})
	require.Equal(t, transport.CodeIDMismatch, heard(t, p).err.Code)
	require.True(t, l.trans.Confirmed(1, []fsm.NodeID{l.id, p.id}).IsZero(), "a lie proves nothing")
}
