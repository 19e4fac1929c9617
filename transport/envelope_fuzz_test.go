// Fuzzing of the endpoint's own messages: hello, opening, refusal, a handler's error.

package transport

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// envelopes makes one of each message to decode into.
func envelopes() []any {
	return []any{&greeting{}, &Hello{}, &opening{}, &refusal{}, &WireError{}}
}

func FuzzDecodeEnvelope(f *testing.F) {
	c, err := newCodec()
	require.NoError(f, err)
	id := func(n byte) (id ulid.ULID) { id[15] = n; return id }
	own := Hello{Cluster: fsm.ClusterID(id(1)), Generation: 1, ID: fsm.NodeID(id(2)).String(), ProtocolMin: 1, ProtocolMax: 2}
	peer := pki.Node(own.Cluster, fsm.NodeID(id(3)))
	theirs := own
	theirs.ID, theirs.Incarnation, theirs.Endpoint = peer.ID, fsm.IncarnationID(id(4)), "10.0.0.1:7443"
	other := theirs
	other.Cluster = fsm.ClusterID(id(9))
	for name, v := range map[string]any{
		"greeting": greeting{Hello: theirs}, "refused": greeting{Refused: &refusal{Code: CodeExpired, Message: "it ran out"}}, "hello": theirs,
		"hello of another cluster": other, "hello of another node": own, "hello of no version": Hello{Cluster: own.Cluster, ID: peer.ID, ProtocolMin: 3, ProtocolMax: 2},
		"opening": opening{Call: true, Method: "ping", Timeout: time.Second, Keep: true}, "negative timeout": opening{Method: "x", Timeout: -1},
		"refusal": refusal{Code: CodeBusy, Message: "full"}, "unknown refusal": refusal{Code: 1 << 31},
		"error": WireError{Kind: 9, Code: "FY-NET-099", Message: "m", Hint: "h", OutcomeUnknown: true}, "error of no kind": WireError{Kind: 255},
	} {
		b, err := c.encode(v)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	corpus.Add(f, "indefinite", []byte{0xbf, 0x01, 0x01, 0xff})
	corpus.Add(f, "nested", bytes.Repeat([]byte{0x81}, 100))
	corpus.Add(f, "an array of all memory", []byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "a text of all memory", []byte{0xa1, 0x03, 0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	corpus.Add(f, "one key twice", []byte{0xa2, 0x03, 0x61, 'a', 0x03, 0x61, 'b'})
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, into := range envelopes() {
			if err := c.decode(b, into); err != nil {
				var e *Error
				require.True(t, errors.As(err, &e) && e.Code == CodeMalformed, "untyped error %v", err)
				continue
			}
			again, err := c.encode(into)
			require.NoError(t, err)
			back := envelopes()[i]
			require.NoError(t, c.decode(again, back))
			require.Equal(t, into, back)
			judge(t, own, peer, into)
		}
	})
}

// judge checks what follows from a message that was decoded.
func judge(t *testing.T, own Hello, peer pki.Subject, v any) {
	switch v := v.(type) {
	case *Hello:
		if err := checkHello(own, *v, peer); err == nil {
			require.Equal(t, []any{own.Cluster, peer.ID}, []any{v.Cluster, v.ID}, "who speaks is who the certificate says")
			require.LessOrEqual(t, len(v.Endpoint), fsm.MaxEndpoint)
		} else {
			require.NotEmpty(t, err.Error())
			require.LessOrEqual(t, len(err.Message), 2*maxWireText)
		}
	case *refusal:
		require.NotEmpty(t, (&Error{Code: v.Code, Message: v.Message, Remote: true}).Error())
	case *WireError:
		require.Equal(t, v.Code+": "+v.Message, v.Error())
	}
}
