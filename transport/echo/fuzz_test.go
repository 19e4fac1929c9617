// Fuzzing of the two packets: anyone may send one to the port.

package echo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzPacket(f *testing.F) {
	nonce, of := [nonceSize]byte{1, 2, 3}, fsm.IncarnationID{15: 7}
	ask := question(nonce)
	answer, ok := Answer(ask, of)
	require.True(f, ok)
	corpus.Add(f, "question", ask)
	corpus.Add(f, "answer", answer)
	corpus.Add(f, "cut", ask[:size-1])
	corpus.Add(f, "a byte too much", append(question(nonce), 0))
	corpus.Add(f, "nothing", []byte{})
	corpus.Add(f, "a QUIC packet", append([]byte{0xc3}, ask[1:]...))
	corpus.Add(f, "next version", append([]byte("\x1eForgeyard echo 2"), ask[kindAt:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, asked := Answer(b, of)
		if asked {
			require.Len(t, out, len(b), "no larger than the question, or the port would amplify a flood")
			back, ok := told(out, [nonceSize]byte(b[nonceAt:incarnationAt]))
			require.True(t, ok)
			require.Equal(t, of, back)
			_, again := Answer(out, of)
			require.False(t, again, "two ports must not answer each other for ever")
			require.Zero(t, b[0]&0xc0, "QUIC's packets are not taken away from it")
		}
		if _, ok := told(b, nonce); ok {
			require.False(t, asked)
			require.Equal(t, nonce[:], b[nonceAt:incarnationAt], "an answer to another question")
		}
	})
}
