// Questions and answers over real sockets: a port that is held, one that is not, one that says nothing.

package echo

import (
	"net"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/fsm"
)

// patience bounds the wait for what certainly comes.
const patience = 10 * time.Second

func TestHeldAndClosedPort(t *testing.T) {
	of := fsm.IncarnationID(ulid.Make())
	held, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		buf := make([]byte, 256)
		for {
			n, from, err := held.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = held.WriteTo([]byte("no answer"), from)
			if out, ok := Answer(buf[:n], of); ok {
				_, _ = held.WriteTo(out, from)
			}
		}
	}()
	conn, err := DialUDP(held.LocalAddr().String())
	require.NoError(t, err)
	s := NewSocket(conn, time.Now)
	before := time.Now()
	r, err := s.Ask(patience)
	require.NoError(t, err)
	require.Equal(t, Echoed, r.Outcome)
	require.Equal(t, of, r.Incarnation)
	require.False(t, r.Sent.Before(before))

	require.NoError(t, held.Close())
	<-answered
	for range 3 { // a refusal is told once and does not colour the next question
		r, err = s.Ask(patience)
		require.NoError(t, err)
		require.Equal(t, Refused, r.Outcome)
		require.Zero(t, r.Incarnation)
	}
	again, err := net.ListenPacket("udp", held.LocalAddr().String())
	require.NoError(t, err)
	r, err = s.Ask(10 * time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, Silent, r.Outcome)
	require.NoError(t, again.Close())
	require.NoError(t, s.Close())
	_, err = s.Ask(time.Millisecond)
	require.ErrorIs(t, err, net.ErrClosed)
}

// A refusal that is read long after its question was sent says nothing about now.
func TestRefusalReadLateIsSilence(t *testing.T) {
	held, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, held.Close())
	conn, err := DialUDP(held.LocalAddr().String())
	require.NoError(t, err)
	clock := time.Now()
	s := NewSocket(conn, func() time.Time { clock = clock.Add(21 * time.Second); return clock })
	r, err := s.Ask(patience)
	require.NoError(t, err)
	require.Equal(t, Silent, r.Outcome)
	require.NoError(t, s.Close())
}

func TestOnlyQuestionsAreAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nonce [nonceSize]byte
		copy(nonce[:], rapid.SliceOfN(rapid.Byte(), nonceSize, nonceSize).Draw(t, "nonce"))
		of := fsm.IncarnationID(ulid.Make())
		asked := question(nonce)
		require.Zero(t, asked[0]&0xc0, "it must not look like a packet of QUIC")
		out, ok := Answer(asked, of)
		require.True(t, ok)
		require.Len(t, out, len(asked), "an answer must not be longer than its question")
		got, ok := told(out, nonce)
		require.True(t, ok)
		require.Equal(t, of, got)
		_, ok = Answer(out, of)
		require.False(t, ok, "two endpoints must not answer each other for ever")
		nonce[0]++
		_, ok = told(out, nonce)
		require.False(t, ok, "the answer to another question")
		i := rapid.IntRange(0, nonceAt-1).Draw(t, "byte")
		asked[i] ^= 0x80
		_, ok = Answer(asked, of)
		require.False(t, ok)
		_, ok = Answer(asked[:rapid.IntRange(0, len(asked)-1).Draw(t, "length")], of)
		require.False(t, ok)
	})
}
