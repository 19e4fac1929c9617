// Fuzzing of what a node reads from outside: requests of the control family, and the files that guard its log store.

package raftnode

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzControlRequest(f *testing.F) {
	node, inc := fsm.NodeID{15: 1}, fsm.IncarnationID{15: 2}
	proposal, err := fsm.EncodeProposal(fsm.Proposal{Request: fsm.RequestID{15: 3}, Command: fsm.ReleaseRole{
		Role: fsm.SchedulerLeader, ExpectedEpoch: 7, Node: node, Incarnation: inc, Code: "FY-ROLE-001", Reason: "r",
	}})
	require.NoError(f, err)
	report := cluster.HealthReport{
		Node: node, Incarnation: inc, PGWritable: true, PGWritableFor: time.Minute, RunnableRoles: fsm.Roles(), AppliedIndex: 9,
		Roles: []cluster.RoleStatus{{Role: fsm.SchedulerLeader, Epoch: 7}},
	}
	own := report
	own.Roles = make([]cluster.RoleStatus, 300) // more than a request may hold
	for name, v := range map[string]any{
		"propose": proposeRequest{Proposal: proposal}, "propose nothing": proposeRequest{}, "propose rubbish": proposeRequest{Proposal: []byte{1, 2}},
		"ping": pingRequest{Report: report}, "ping of all": pingRequest{Report: own}, "negative time": pingRequest{Report: cluster.HealthReport{PGWritableFor: -1}},
		"testimony":     early.Testimony{Gone: true, Position: early.Position{Term: 2, Index: 9}},
		"propose reply": proposeReply{Result: fsm.Result{Epoch: 8}, Index: 10, Term: 2}, "ping reply": pingReply{Age: time.Second, Index: 3},
	} {
		b, err := cbor.Marshal(v)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	corpus.Add(f, "nested", bytes.Repeat([]byte{0x81}, 64))
	corpus.Add(f, "an array of all memory", []byte{0xa1, 0x01, 0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "tagged", []byte{0xc1, 0x00})
	f.Fuzz(func(t *testing.T, b []byte) {
		var propose proposeRequest
		if err := DecodeRequest(b, &propose); err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		} else if p, err := fsm.DecodeProposal(propose.Proposal); err == nil {
			// Whoever sent it: only what a process says of itself may be forwarded.
			other := cluster.Identity{Node: fsm.NodeID{15: 99}, Incarnation: inc}
			require.False(t, forwardable(p.Command, other), "%#v", p.Command)
		}
		var said early.Testimony
		if err := DecodeRequest(b, &said); err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		}
		var ping pingRequest
		if err := DecodeRequest(b, &ping); err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := cbor.Marshal(ping)
		require.NoError(t, err)
		var back pingRequest
		require.NoError(t, DecodeRequest(again, &back))
		require.Equal(t, ping.Report.Node, back.Report.Node)
		require.LessOrEqual(t, len(ping.Report.Roles), 256)
	})
}

// What a leader answers: an answer says no more than this node asked, and proves nothing that is still to come.
func FuzzControlReply(f *testing.F) {
	for name, v := range map[string]any{
		"proposed": proposeReply{Result: fsm.Result{Epoch: 8, Config: 3}, Index: 10, Term: 2}, "replayed": proposeReply{Result: fsm.Result{Epoch: 8, NoOp: true}, Index: 10, Term: 2, Replay: true},
		"proposed nothing": proposeReply{}, "ping": pingReply{Age: time.Second, Index: 3}, "just confirmed": pingReply{Index: 3}, "confirmed in time to come": pingReply{Age: -time.Hour, Index: 3},
		"oldest": pingReply{Age: math.MaxInt64, Index: math.MaxUint64}, "never": pingReply{Age: math.MinInt64}, "a request": pingRequest{Report: cluster.HealthReport{Node: fsm.NodeID{15: 1}}},
	} {
		b, err := cbor.Marshal(v)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	corpus.Add(f, "null", []byte{0xf6})
	corpus.Add(f, "nothing", []byte{})
	corpus.Add(f, "an age of text", []byte{0xa1, 0x01, 0x61, 'x'})
	corpus.Add(f, "an index below zero", []byte{0xa1, 0x02, 0x20})
	sent := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, b []byte) {
		// The transport's own bounds are wider; neither answer has anything that they would stop.
		var proposed proposeReply
		if DecodeRequest(b, &proposed) == nil {
			commit := proposed.commit()
			require.Equal(t, cluster.Commit{Result: fsm.Result{Epoch: proposed.Result.Epoch, Config: proposed.Result.Config, NoOp: proposed.Result.NoOp, Replay: proposed.Replay},
				Index: proposed.Index, Term: proposed.Term}, commit)
			again, err := cbor.Marshal(proposeReply{Result: commit.Result, Index: commit.Index, Term: commit.Term, Replay: commit.Replay})
			require.NoError(t, err)
			var back proposeReply
			require.NoError(t, DecodeRequest(again, &back))
			require.Equal(t, commit, back.commit(), "as the leader sends it on")
		}
		var ping pingReply
		if DecodeRequest(b, &ping) == nil {
			a := ping.proof(sent)
			require.False(t, a.at.After(sent), "%s after the question", a.at.Sub(sent))
			var c confirmation
			c.answered(a, 0)
			c.appliedTo(a.index)
			require.True(t, c.at().Equal(a.at))
		}
	})
}

// Marker, high-water mark and tail mark: what cannot be read is an error, never
// a node without a past. Half of the inputs get a valid checksum and reach the
// decoder behind it.
func FuzzGuardFiles(f *testing.F) {
	for name, s := range map[string]string{
		"marker": `{"cluster_id":"00000000000000000000000001","node_id":"00000000000000000000000002","created":"2026-11-29T00:00:00Z"}`,
		"mark":   `{"term":7,"applied_index":12}`, "mark cut": `{"term":7,"appl`, "null": "null", "nothing inside": "{}", "a list": "[]",
		"zeros": string(make([]byte, 40)), "a negative term": `{"term":-1}`, "a term too large": `{"term":18446744073709551616}`,
		"two documents": `{"term":7}{"term":0}`, "another name": `{"Term":7,"applied":3}`, "term twice": `{"term":7,"term":0}`, "empty": "",
	} {
		corpus.Add(f, name, s, true)
	}
	corpus.Add(f, "unsealed", `{"term":7,"applied_index":12}`+"\n", false)
	corpus.Add(f, "a wrong checksum", `{"term":7,"applied_index":12}`+"\n00000000\n", false)
	corpus.Add(f, "tail", string(tailText(12)), false)
	corpus.Add(f, "tail with a sign", "+0000000000000000012 00000000\n", false)
	corpus.Add(f, "two tails", string(tailText(12))+string(tailText(13)), false)
	f.Fuzz(func(t *testing.T, s string, sealed bool) {
		content := []byte(s)
		if sealed {
			content = seal.Add(content)
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, markFile), content, 0o600))
		h, err := openHighWater(dir)
		if err == nil {
			require.NoError(t, writeJSON(h.path, h.load()))
			again, err := openHighWater(dir)
			require.NoError(t, err)
			require.Equal(t, h.load(), again.load())
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, markerFile), content, 0o600))
		_, marked, err := readMarker(dir)
		require.True(t, marked || err != nil, "a file is there")
		require.NoError(t, os.WriteFile(tailPath(dir), content, 0o600))
		if last, err := readTail(dir); err == nil {
			require.Equal(t, string(tailText(last)), string(content), "one text for one mark")
		}
	})
}

// An entry of the log that reads well is the one that was stored.
func FuzzUnsealEntry(f *testing.F) {
	sealed := func(e raft.Log) []byte {
		return binary.BigEndian.AppendUint32(bytes.Clone(e.Extensions), entrySum(&e))
	}
	plain := raft.Log{Index: 5, Term: 2, Type: raft.LogCommand, Data: []byte("command")}
	extended := plain
	extended.Extensions = []byte("x")
	corpus.Add(f, "entry", int64(5), int64(2), byte(raft.LogCommand), plain.Data, sealed(plain), int64(0))
	corpus.Add(f, "with extensions", int64(5), int64(2), byte(raft.LogCommand), plain.Data, sealed(extended), int64(0))
	corpus.Add(f, "another index", int64(6), int64(2), byte(raft.LogCommand), plain.Data, sealed(plain), int64(0))
	corpus.Add(f, "another type", int64(5), int64(2), byte(raft.LogConfiguration), plain.Data, sealed(plain), int64(0))
	corpus.Add(f, "no checksum", int64(5), int64(2), byte(raft.LogCommand), plain.Data, []byte{}, int64(0))
	corpus.Add(f, "half a checksum", int64(5), int64(2), byte(raft.LogCommand), plain.Data, []byte{1, 2}, int64(0))
	corpus.Add(f, "a byte moved over", int64(5), int64(2), byte(raft.LogCommand), []byte("comman"), append([]byte("d"), sealed(plain)...), int64(0))
	f.Fuzz(func(t *testing.T, index, term int64, kind byte, data, extensions []byte, at int64) {
		e := raft.Log{Index: uint64(index), Term: uint64(term), Type: raft.LogType(kind), Data: data, Extensions: bytes.Clone(extensions)}
		if at != 0 {
			e.AppendedAt = time.Unix(0, at)
		}
		if err := unsealEntry(uint64(index), &e); err != nil {
			require.ErrorIs(t, err, errUnsealed)
			return
		}
		require.Equal(t, string(extensions), string(sealed(e)), "it seals to what was read")
	})
}
