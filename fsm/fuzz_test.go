// Fuzzing of the two decoders; the seeds are valid inputs, the corpora under testdata/fuzz found inputs.

package fsm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range everyCommand() {
		data, err := EncodeProposal(propose(c))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeProposal(data)
		if err != nil {
			require.Zero(t, p)
			return
		}
		again, err := EncodeProposal(p)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "two encodings of one proposal")
		s := newLab(t).found().s
		before := s.Hash()
		if _, err := s.Apply(9, 1, p); err != nil {
			require.Equal(t, before, s.Hash())
		}
		require.NoError(t, s.body.checkInvariants())
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	blank, err := NewState().EncodeSnapshot()
	require.NoError(f, err)
	f.Add(blank, false)
	l := newLab(f).found().voter(2)
	l.elect(1)
	l.assign(SchedulerLeader, 2)
	snap, err := l.s.EncodeSnapshot()
	require.NoError(f, err)
	f.Add(snap, false)
	f.Add(snap, true)
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		// The checksum stops nearly every mutation, so half of the inputs get a
		// valid one and reach the decoder behind it.
		if reseal && len(data) >= snapshotHeader {
			data = bytes.Clone(data)
			sum := checksum(data[:snapshotVersions], data[snapshotHeader:])
			copy(data[snapshotVersions:], sum[:])
		}
		s, err := DecodeSnapshot(data)
		if err != nil {
			require.Nil(t, s)
			return
		}
		require.NoError(t, s.body.checkInvariants())
		again, err := s.EncodeSnapshot()
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "two encodings of one snapshot")
	})
}
