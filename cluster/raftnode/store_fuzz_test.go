// Fuzzing of what a node reads back from its own disk: the record of term and vote, and a snapshot's description with its seal.

package raftnode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// Term and vote: what reads well can be asked, changed and read again. Half of the
// inputs get a valid checksum and reach the decoder behind it.
func FuzzSealedStable(f *testing.F) {
	voted := map[string][]byte{
		keyOwner: []byte("node a of cluster b"), keyCurrentTerm: {0, 0, 0, 0, 0, 0, 0, 7}, keyLastVoteTerm: {0, 0, 0, 0, 0, 0, 0, 7}, keyLastVoteCand: []byte("candidate"),
	}
	whole, err := sealStable(voted)
	require.NoError(f, err)
	corpus.Add(f, "voted", whole, false)
	none, err := sealStable(map[string][]byte{})
	require.NoError(f, err)
	corpus.Add(f, "nothing yet", none, false)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	corpus.Add(f, "one bit", flipped, false)
	corpus.Add(f, "cut", whole[:len(whole)/2], false)
	corpus.Add(f, "shorter than a checksum", whole[:3], false)
	corpus.Add(f, "null", []byte{0xf6}, true)
	corpus.Add(f, "a term of three bytes", []byte("\xa1\x6bCurrentTerm\x43\x01\x02\x03"), true)
	corpus.Add(f, "a term twice", []byte("\xa2\x6bCurrentTerm\x41\x01\x6bCurrentTerm\x41\x02"), true)
	corpus.Add(f, "a number for a vote", []byte("\xa1\x6cLastVoteCand\x07"), true)
	corpus.Add(f, "a map of all memory", []byte{0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli)), b...)
		}
		values, err := unsealStable(b)
		if err != nil {
			require.Nil(t, values)
			return
		}
		require.NotNil(t, values, "nothing can be set in it")
		s := &sealedStable{values: values}
		for key, value := range values {
			got, err := s.Get([]byte(key))
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, got))
			_, err = s.GetUint64([]byte(key))
			require.Equal(t, len(value) == 8, err == nil)
		}
		require.Equal(t, string(values[keyOwner]), s.owner())
		again, err := sealStable(values)
		require.NoError(t, err)
		back, err := unsealStable(again)
		require.NoError(t, err)
		require.Equal(t, values, back)
	})
}

// A snapshot: one that is listed as whole opens, is what was sealed, and its index,
// term and voters are those that stood under the seal. With reseal the seal fits what
// the description says, whatever that is.
func FuzzSnapshotMeta(f *testing.F) {
	const id = "2-9-1796000000000"
	dir := f.TempDir()
	store, err := openSnapshots(dir, slog.New(slog.DiscardHandler))
	require.NoError(f, err)
	state, err := fsm.NewState().EncodeSnapshot()
	require.NoError(f, err)
	voters := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "a", Address: "a"}, {Suffrage: raft.Nonvoter, ID: "b", Address: "b"}}}
	_, peers := raft.NewInmemTransport("a")
	sink, err := store.Create(raft.SnapshotVersionMax, 9, 2, voters, 7, peers)
	require.NoError(f, err)
	_, err = sink.Write(state)
	require.NoError(f, err)
	require.NoError(f, sink.Close())
	original, _, err := store.Open(sink.ID())
	require.NoError(f, err)
	text, err := os.ReadFile(filepath.Join(store.dir, sink.ID(), metaFile))
	require.NoError(f, err)
	meta := bytes.ReplaceAll(text, []byte(sink.ID()), []byte(id)) // its own id tells the time
	original.ID = id
	sealed := func(t require.TestingT, m raft.SnapshotMeta, state []byte) string {
		sum := sha256.Sum256(state)
		seal, err := snapshotSeal(m, sum[:])
		require.NoError(t, err)
		return seal
	}
	kept, seal := state, sealed(f, *original, state)
	first := seal

	changed := func(old, now string) []byte {
		b := bytes.ReplaceAll(meta, []byte(old), []byte(now))
		require.NotEqual(f, meta, b)
		return b
	}
	corpus.Add(f, "whole", meta, state, seal, false)
	corpus.Add(f, "another index", changed(`"Index":9`, `"Index":8`), state, seal, false)
	corpus.Add(f, "another voter", changed(`"ID":"a"`, `"ID":"c"`), state, seal, false)
	corpus.Add(f, "another checksum of the library", changed(`"CRC":"`, `"CRC":"AAAA`), state, seal, false)
	corpus.Add(f, "a term twice", changed(`"Term":2`, `"Term":2,"term":3`), state, seal, false)
	corpus.Add(f, "a newer version", changed(`"Version":1`, `"Version":2`), state, seal, true)
	corpus.Add(f, "a negative size", changed(`"Size":`, `"Size":-`), state, seal, true)
	corpus.Add(f, "another id", changed(id, "../"+id), state, seal, true)
	corpus.Add(f, "cut", meta[:len(meta)/2], state, seal, false)
	corpus.Add(f, "null", []byte("null"), state, seal, true)
	corpus.Add(f, "a state cut", meta, state[:len(state)/2], seal, true)
	corpus.Add(f, "no seal", meta, state, "", false)
	f.Fuzz(func(t *testing.T, meta, state []byte, seal string, reseal bool) {
		store, err := openSnapshots(t.TempDir(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		dir := filepath.Join(store.dir, id)
		require.NoError(t, os.Mkdir(dir, 0o700))
		var said raft.SnapshotMeta
		if reseal && json.NewDecoder(bytes.NewReader(meta)).Decode(&said) == nil {
			seal = sealed(t, said, state)
		}
		for name, b := range map[string][]byte{metaFile: meta, stateFile: state, sealFile: []byte(seal)} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		all, err := store.all()
		require.NoError(t, err)
		require.Len(t, all, 1)
		listed, err := store.List()
		require.NoError(t, err)
		if all[0].err != nil {
			require.Empty(t, listed)
			require.Equal(t, raft.SnapshotMeta{ID: id, Term: 2, Index: 9}, *all[0].meta)
			return
		}
		require.Len(t, listed, 1)
		require.Equal(t, seal, sealed(t, *listed[0], state))
		opened, r, err := store.Open(id)
		require.NoError(t, err, "what is listed as whole does not open")
		require.NoError(t, r.Close())
		require.Equal(t, listed[0], opened)
		if seal == first {
			opened.Peers = original.Peers // of an older version, and not under the seal
			require.Equal(t, original, opened, "another snapshot under this seal")
			require.True(t, bytes.Equal(kept, state))
		}
		if restored, err := store.restore(all[0]); err == nil {
			again, err := restored.EncodeSnapshot()
			require.NoError(t, err)
			require.True(t, bytes.Equal(state, again))
		}
	})
}
