// Fuzzing of the answers: what a peer's raft says to a request of ours.

package rafttransport

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// decoded is every kind of answer that the bytes can be read as.
func decoded(b []byte) (answers []any, errs []error) {
	note := func(p any, _ raft.RPCHeader, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		answers = append(answers, p)
	}
	a, v, p, n, s := &raft.AppendEntriesResponse{}, &raft.RequestVoteResponse{}, &raft.RequestPreVoteResponse{}, &raft.TimeoutNowResponse{}, &raft.InstallSnapshotResponse{}
	h, err := decodeAppendResponse(b, a)
	note(a, h, err)
	h, err = decodeVoteResponse(b, v)
	note(v, h, err)
	h, err = decodePreVoteResponse(b, p)
	note(p, h, err)
	h, err = decodeTimeoutNowResponse(b, n)
	note(n, h, err)
	h, err = decodeSnapshotResponse(b, s)
	note(s, h, err)
	return answers, errs
}

func FuzzDecodeAnswer(f *testing.F) {
	for name, r := range map[string]raft.RPCResponse{
		"append":       {Response: &raft.AppendEntriesResponse{RPCHeader: header(), Term: 1, LastLog: 2, Success: true, NoRetryBackoff: true}},
		"vote":         {Response: &raft.RequestVoteResponse{RPCHeader: header(), Term: 1<<64 - 1, Peers: []byte("p"), Granted: true}},
		"pre-vote":     {Response: &raft.RequestPreVoteResponse{RPCHeader: header(), Term: 1}},
		"timeout now":  {Response: &raft.TimeoutNowResponse{}},
		"snapshot":     {Response: &raft.InstallSnapshotResponse{RPCHeader: header(), Term: 1, Success: true}},
		"error":        {Error: errors.New("no")},
		"error of all": {Error: errors.New(string(make([]byte, 2*maxErrorText)))},
	} {
		b, err := encodeAnswer(r, "self")
		require.NoError(f, err)
		corpus.Add(f, name, b)
		corpus.Add(f, name+" cut", b[:len(b)-1])
	}
	corpus.Add(f, "unknown status", []byte{7})
	corpus.Add(f, "nothing", []byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		answers, errs := decoded(b)
		for _, err := range errs {
			require.True(t, isRemote(err) || errors.Is(err, errMalformed), "untyped error %v", err)
			require.LessOrEqual(t, len(err.Error()), maxErrorText+len(errMalformed.Error()))
		}
		for _, a := range answers {
			again, err := encodeAnswer(raft.RPCResponse{Response: a}, "")
			require.NoError(t, err)
			back, _ := decoded(again)
			require.Contains(t, back, a)
		}
	})
}
