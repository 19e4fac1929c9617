// Raft's messages survive their encoding, and a stranger's bytes never panic.

package rafttransport

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("n1")}
}

// configuration is what an entry or a snapshot may carry as one.
var configuration = raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "n1", Address: "n1"}}})

func requests() map[raft.WithRPCHeader][]byte {
	entries := &raft.AppendEntriesRequest{
		RPCHeader: header(), Term: 7, PrevLogEntry: 8, PrevLogTerm: 6, LeaderCommitIndex: 5,
		Entries: []*raft.Log{
			{Index: 9, Term: 7, Type: raft.LogCommand, Data: []byte("d"), Extensions: []byte("e"), AppendedAt: time.Unix(5, 6)},
			{Index: 10, Term: 7, Type: raft.LogConfiguration, Data: configuration},
		},
	}
	beat := &raft.AppendEntriesRequest{RPCHeader: header(), Term: 1<<64 - 1}
	vote := &raft.RequestVoteRequest{RPCHeader: header(), Term: 1, LastLogIndex: 2, LastLogTerm: 3, LeadershipTransfer: true}
	pre := &raft.RequestPreVoteRequest{RPCHeader: header(), Term: 1, LastLogIndex: 2, LastLogTerm: 3}
	now := &raft.TimeoutNowRequest{RPCHeader: header()}
	snap := &raft.InstallSnapshotRequest{
		RPCHeader: header(), SnapshotVersion: 1, Term: 4, LastLogIndex: 5, LastLogTerm: 6,
		Peers: []byte("p"), Configuration: configuration, ConfigurationIndex: 7, Size: 1 << 40,
	}
	return map[raft.WithRPCHeader][]byte{
		entries: encodeAppend(entries), beat: encodeAppend(beat), vote: encodeVote(vote),
		pre: encodePreVote(pre), now: encodeTimeoutNow(now), snap: encodeSnapshot(snap),
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	for q, b := range requests() {
		got, err := decodeRequest(b)
		require.NoError(t, err)
		require.Equal(t, q, got)
		for n := range len(b) {
			_, err := decodeRequest(b[:n])
			require.ErrorIs(t, err, errMalformed, "%T cut to %d of %d bytes", q, n, len(b))
		}
		_, err = decodeRequest(append(b[:len(b):len(b)], 0))
		require.ErrorIs(t, err, errMalformed, "%T with a byte too much", q)
	}
}

func TestAnswersRoundTrip(t *testing.T) {
	round := func(want, into any, decode func([]byte) (raft.RPCHeader, error)) {
		t.Helper()
		b, err := encodeAnswer(raft.RPCResponse{Response: want}, "self")
		require.NoError(t, err)
		h, err := decode(b)
		require.NoError(t, err)
		require.Equal(t, header(), h)
		require.Equal(t, want, into)
		for n := range len(b) {
			_, err := decode(b[:n])
			require.ErrorIs(t, err, errMalformed)
		}
	}
	a, v, p, n, s := &raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.RequestPreVoteResponse{}, &raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{}
	round(&raft.AppendEntriesResponse{RPCHeader: header(), Term: 1, LastLog: 2, Success: true, NoRetryBackoff: true}, a,
		func(b []byte) (raft.RPCHeader, error) { return decodeAppendResponse(b, a) })
	round(&raft.RequestVoteResponse{RPCHeader: header(), Term: 1, Peers: []byte("p"), Granted: true}, v,
		func(b []byte) (raft.RPCHeader, error) { return decodeVoteResponse(b, v) })
	round(&raft.RequestPreVoteResponse{RPCHeader: header(), Term: 1, Granted: true}, p,
		func(b []byte) (raft.RPCHeader, error) { return decodePreVoteResponse(b, p) })
	round(&raft.TimeoutNowResponse{RPCHeader: header()}, n,
		func(b []byte) (raft.RPCHeader, error) { return decodeTimeoutNowResponse(b, n) })
	round(&raft.InstallSnapshotResponse{RPCHeader: header(), Term: 1, Success: true}, s,
		func(b []byte) (raft.RPCHeader, error) { return decodeSnapshotResponse(b, s) })

	// An answer whose header raft left empty leaves with this node's id.
	b, err := encodeAnswer(raft.RPCResponse{Response: &raft.InstallSnapshotResponse{}}, "self")
	require.NoError(t, err)
	h, err := decodeSnapshotResponse(b, s)
	require.NoError(t, err)
	require.Equal(t, "self", string(h.ID))

	b, err = encodeAnswer(raft.RPCResponse{Error: errors.New("no")}, "self")
	require.NoError(t, err)
	_, err = decodeVoteResponse(b, v)
	require.EqualError(t, err, "no")
	require.True(t, isRemote(err))
	_, err = encodeAnswer(raft.RPCResponse{Response: 7}, "self")
	require.Error(t, err)
}

func TestDecodeRefusesWhatRaftWouldPanicOn(t *testing.T) {
	bad := func(change func(*raft.AppendEntriesRequest)) []byte {
		q := &raft.AppendEntriesRequest{RPCHeader: header(), Term: 1, Entries: []*raft.Log{{Index: 1}}}
		change(q)
		return encodeAppend(q)
	}
	for name, b := range map[string][]byte{
		"type of entry":    bad(func(q *raft.AppendEntriesRequest) { q.Entries[0].Type = 99 }),
		"protocol version": bad(func(q *raft.AppendEntriesRequest) { q.ProtocolVersion = 9 }),
		"long id":          bad(func(q *raft.AppendEntriesRequest) { q.ID = make([]byte, maxID+1) }),
		"too many entries": bad(func(q *raft.AppendEntriesRequest) { q.Entries = make([]*raft.Log, maxEntries+1); fill(q.Entries) }),
		"negative size":    encodeSnapshot(&raft.InstallSnapshotRequest{RPCHeader: header(), Size: -1}),
		"configuration": bad(func(q *raft.AppendEntriesRequest) {
			q.Entries[0].Type, q.Entries[0].Data = raft.LogConfiguration, []byte("c")
		}),
		"no configuration":            bad(func(q *raft.AppendEntriesRequest) { q.Entries[0].Type = raft.LogConfiguration }),
		"configuration of a snapshot": encodeSnapshot(&raft.InstallSnapshotRequest{RPCHeader: header(), SnapshotVersion: 1, Configuration: []byte("c")}),
		"unknown message":             {99},
		"nothing":                     nil,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeRequest(b)
			require.ErrorIs(t, err, errMalformed)
		})
	}
}

func fill(entries []*raft.Log) {
	for i := range entries {
		entries[i] = &raft.Log{}
	}
}

func TestHeartbeatIsRecognised(t *testing.T) {
	require.True(t, isHeartbeat(&raft.AppendEntriesRequest{Term: 1}))
	for _, q := range []*raft.AppendEntriesRequest{
		{}, {Term: 1, PrevLogEntry: 1}, {Term: 1, PrevLogTerm: 1}, {Term: 1, LeaderCommitIndex: 1}, {Term: 1, Entries: []*raft.Log{{}}},
	} {
		require.False(t, isHeartbeat(q))
	}
}

func FuzzDecodeRequest(f *testing.F) {
	for q, b := range requests() {
		name := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", q), "*raft."), "Request")
		corpus.Add(f, fmt.Sprintf("%s of %d", name, len(b)), b)
		corpus.Add(f, fmt.Sprintf("%s of %d cut", name, len(b)), b[:len(b)/2])
	}
	corpus.Add(f, "a configuration that is none", encodeAppend(&raft.AppendEntriesRequest{RPCHeader: header(), Entries: []*raft.Log{{Type: raft.LogConfiguration, Data: []byte("c")}}}))
	corpus.Add(f, "a snapshot's configuration that is none", encodeSnapshot(&raft.InstallSnapshotRequest{RPCHeader: header(), SnapshotVersion: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeRequest(b)
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		var again []byte
		switch q := q.(type) {
		case *raft.AppendEntriesRequest:
			again = encodeAppend(q)
			for _, l := range q.Entries {
				if l.Type == raft.LogConfiguration {
					raft.DecodeConfiguration(l.Data) // as raft does: it panics on what it cannot read
				}
			}
		case *raft.RequestVoteRequest:
			again = encodeVote(q)
		case *raft.RequestPreVoteRequest:
			again = encodePreVote(q)
		case *raft.TimeoutNowRequest:
			again = encodeTimeoutNow(q)
		case *raft.InstallSnapshotRequest:
			again = encodeSnapshot(q)
			if q.SnapshotVersion > 0 {
				raft.DecodeConfiguration(q.Configuration)
			}
		}
		back, err := decodeRequest(again)
		if err != nil || !reflect.DeepEqual(q, back) {
			t.Fatalf("%#v became %#v (%v)", q, back, err)
		}
	})
}
