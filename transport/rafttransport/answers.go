// Answers: Raft's responses as bytes.

package rafttransport

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// maxErrorText bounds the text of an error in an answer, in bytes.
const maxErrorText = 1024

// encodeAnswer writes what raft answered to a request. Raft leaves the header
// of some answers empty; on the wire each carries this node's id.
func encodeAnswer(a raft.RPCResponse, self raft.ServerAddress) ([]byte, error) {
	w := &writer{}
	header := func(h raft.RPCHeader) {
		if len(h.ID) == 0 && len(h.Addr) == 0 {
			h.ID, h.Addr = []byte(self), []byte(self)
		}
		w.header(h)
	}
	if a.Error != nil {
		text := a.Error.Error()
		w.byte(answerError)
		w.bytes([]byte(text[:min(len(text), maxErrorText)]))
		return w.b, nil
	}
	w.byte(answerOK)
	switch p := a.Response.(type) {
	case *raft.AppendEntriesResponse:
		header(p.RPCHeader)
		w.uint(p.Term)
		w.uint(p.LastLog)
		w.bool(p.Success)
		w.bool(p.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		header(p.RPCHeader)
		w.uint(p.Term)
		w.bytes(p.Peers)
		w.bool(p.Granted)
	case *raft.RequestPreVoteResponse:
		header(p.RPCHeader)
		w.uint(p.Term)
		w.bool(p.Granted)
	case *raft.TimeoutNowResponse:
		header(p.RPCHeader)
	case *raft.InstallSnapshotResponse:
		header(p.RPCHeader)
		w.uint(p.Term)
		w.bool(p.Success)
	default:
		return nil, fmt.Errorf("unexpected raft response %T", a.Response)
	}
	return w.b, nil
}

// remoteError is an error that the other node's raft answered with.
type remoteError struct{ text string }

func (e *remoteError) Error() string { return e.text }

// openAnswer gives the rest of a good answer or the peer's error.
func openAnswer(b []byte) (*reader, error) {
	r := &reader{b: b}
	switch r.byte() {
	case answerOK:
		return r, r.err
	case answerError:
		text := r.bytes(maxErrorText)
		if err := r.end(); err != nil {
			return nil, err
		}
		return nil, &remoteError{string(text)}
	}
	return nil, fmt.Errorf("%w: unknown answer", errMalformed)
}

func decodeAppendResponse(b []byte, p *raft.AppendEntriesResponse) (raft.RPCHeader, error) {
	r, err := openAnswer(b)
	if err != nil {
		return raft.RPCHeader{}, err
	}
	*p = raft.AppendEntriesResponse{RPCHeader: r.header(), Term: r.uint(), LastLog: r.uint(), Success: r.bool(), NoRetryBackoff: r.bool()}
	return p.RPCHeader, r.end()
}

func decodeVoteResponse(b []byte, p *raft.RequestVoteResponse) (raft.RPCHeader, error) {
	r, err := openAnswer(b)
	if err != nil {
		return raft.RPCHeader{}, err
	}
	*p = raft.RequestVoteResponse{RPCHeader: r.header(), Term: r.uint(), Peers: r.bytes(maxBlob), Granted: r.bool()}
	return p.RPCHeader, r.end()
}

func decodePreVoteResponse(b []byte, p *raft.RequestPreVoteResponse) (raft.RPCHeader, error) {
	r, err := openAnswer(b)
	if err != nil {
		return raft.RPCHeader{}, err
	}
	*p = raft.RequestPreVoteResponse{RPCHeader: r.header(), Term: r.uint(), Granted: r.bool()}
	return p.RPCHeader, r.end()
}

func decodeTimeoutNowResponse(b []byte, p *raft.TimeoutNowResponse) (raft.RPCHeader, error) {
	r, err := openAnswer(b)
	if err != nil {
		return raft.RPCHeader{}, err
	}
	*p = raft.TimeoutNowResponse{RPCHeader: r.header()}
	return p.RPCHeader, r.end()
}

func decodeSnapshotResponse(b []byte, p *raft.InstallSnapshotResponse) (raft.RPCHeader, error) {
	r, err := openAnswer(b)
	if err != nil {
		return raft.RPCHeader{}, err
	}
	*p = raft.InstallSnapshotResponse{RPCHeader: r.header(), Term: r.uint(), Success: r.bool()}
	return p.RPCHeader, r.end()
}

func isRemote(err error) bool { return errors.As(err, new(*remoteError)) }
