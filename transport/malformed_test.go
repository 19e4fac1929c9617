// What a member's broken or hostile messages cost: one stream, and nothing else.

package transport_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
)

func TestMalformedStreamsEndWithTheirReason(t *testing.T) {
	f := newForger(t)
	subject := pki.Node(f.Cluster(), nodeID())
	server := node(t, f.Authority)
	server.Handle(transport.FamilyControl, "echo", echo)
	raw, err := dialRaw(t, server.Addr(), f.honest(t, subject))
	require.NoError(t, err)
	require.NoError(t, raw.hello(helloOf(subject)))

	control := byte(transport.FamilyControl)
	open := cborOf(t, map[int]any{1: true, 2: "echo"})
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{control, 1}, n) }
	cases := map[string]struct {
		b    []byte
		want transport.Code
	}{
		"unknown family":      {frame(77, 1, open), transport.CodeUnknownFamily},
		"unknown version":     {frame(control, 9, open), transport.CodeVersion},
		"long first frame":    {length(513), transport.CodeTooLarge},
		"absurd length":       {length(1<<32 - 1), transport.CodeTooLarge},
		"half a header":       {frame(control, 1, open)[:3], transport.CodeMalformed},
		"half a first frame":  {frame(control, 1, open)[:9], transport.CodeMalformed},
		"not CBOR":            {frame(control, 1, []byte{0xff, 0xff}), transport.CodeMalformed},
		"endless CBOR":        {frame(control, 1, []byte{0x9f}), transport.CodeMalformed},
		"body too long":       {append(frame(control, 1, open), length(1<<20+1)...), transport.CodeTooLarge},
		"body ends early":     {append(frame(control, 1, open), length(10)...), transport.CodeMalformed},
		"body of new version": {append(frame(control, 1, open), frame(control, 2, nil)...), transport.CodeVersion},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := raw.send(c.b)
			var se *quic.StreamError
			require.ErrorAs(t, err, &se)
			require.Equal(t, c.want, transport.Code(se.ErrorCode))
			require.Equal(t, c.want, server.refused.next(t).Code)
			require.NoError(t, raw.Context().Err(), "the connection lives on")
		})
	}
	require.NoError(t, raw.send(append(frame(control, 1, open), frame(control, 1, cborOf(t, "hi"))...)))

	t.Run("another family's message on the stream", func(t *testing.T) {
		_ = raw.send(append(frame(control, 1, open), frame(byte(transport.FamilyRaft), 1, nil)...))
		code, _ := raw.closedWith()
		require.Equal(t, transport.CodeWrongFamily, code)
	})
}

func TestNothingBeforeTheHello(t *testing.T) {
	f := newForger(t)
	server := node(t, f.Authority)
	raw, err := dialRaw(t, server.Addr(), f.honest(t, pki.Node(f.Cluster(), nodeID())))
	require.NoError(t, err)
	_ = raw.send(frame(byte(transport.FamilyControl), 1, cborOf(t, map[int]any{1: true, 2: "echo"})))
	code, _ := raw.closedWith()
	require.Equal(t, transport.CodeWrongFamily, code)
}

// TestConnectionBound: what is too much is refused, and who is there already does not feel it.
func TestConnectionBound(t *testing.T) {
	f := newForger(t)
	server := listen(t, options{
		identity: identity(t, f.Authority, pki.Node(f.Cluster(), nodeID())), accept: pki.KindNode,
		limits: transport.Limits{PerPeer: 2, Connections: 4, Handshakes: 3, Handshake: time.Second},
	})
	server.Handle(transport.FamilyControl, "echo", echo)
	call := append(frame(byte(transport.FamilyControl), 1, cborOf(t, map[int]any{1: true, 2: "echo"})),
		frame(byte(transport.FamilyControl), 1, cborOf(t, 1))...)

	greedy := pki.Node(f.Cluster(), nodeID())
	cert, hello := f.honest(t, greedy), helloOf(greedy)
	var good []*rawConn
	for range 2 {
		raw, err := dialRaw(t, server.Addr(), cert)
		require.NoError(t, err)
		require.NoError(t, raw.hello(hello))
		good = append(good, raw)
	}
	third, err := dialRaw(t, server.Addr(), cert)
	require.NoError(t, err)
	require.Error(t, third.hello(hello))
	code, text := third.closedWith()
	require.Equal(t, transport.CodeBusy, code)
	require.Contains(t, text, "at most 2")
	for _, raw := range good {
		require.NoError(t, raw.send(call))
	}

	// Strangers who never say hello take the places of strangers only, and for a bounded time.
	var silent []*rawConn
	require.Eventually(t, func() bool {
		raw, err := dialRaw(t, server.Addr(), f.honest(t, pki.Node(f.Cluster(), nodeID())))
		if err != nil {
			var tr *quic.TransportError
			require.ErrorAs(t, err, &tr)
			require.Equal(t, quic.ConnectionRefused, tr.ErrorCode)
			return true
		}
		silent = append(silent, raw)
		require.LessOrEqual(t, len(silent), 3)
		return false
	}, 10*time.Second, time.Millisecond)
	for _, raw := range good {
		require.NoError(t, raw.send(call))
	}
	for _, raw := range silent {
		code, _ := raw.closedWith()
		require.Equal(t, transport.CodeTimeout, code)
	}
	late := pki.Node(f.Cluster(), nodeID())
	var raw *rawConn
	require.Eventually(t, func() bool {
		raw, err = dialRaw(t, server.Addr(), f.honest(t, late))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, raw.hello(helloOf(late)))
}

// TestQuicTransportStreamLeak: a thousand callers that give up half-way leave room for a thousand that do not.
func TestQuicTransportStreamLeak(t *testing.T) {
	ca := authority(t)
	limits := transport.Limits{Streams: 8}
	server := listen(t, options{identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode, limits: limits})
	client := node(t, ca)
	knows(client, server)
	server.Handle(transport.FamilyControl, "echo", echo)
	big := make([]byte, 100<<10)
	running := make(chan struct{}, 1)
	server.Handle(transport.FamilyControl, "big", func(context.Context, transport.Peer, []byte) (any, error) {
		running <- struct{}{}
		return big, nil
	})
	server.Handle(transport.FamilyControl, "hang", func(ctx context.Context, _ transport.Peer, _ []byte) (any, error) {
		running <- struct{}{}
		<-ctx.Done() // ends because the caller gave up, or this test would not
		return nil, ctx.Err()
	})
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		method := []string{"big", "hang"}[i%2]
		done := make(chan error, 1)
		go func() { done <- client.Call(ctx, server.id, transport.FamilyControl, method, i, nil) }()
		<-running
		cancel()
		if err := <-done; method == "hang" {
			require.Error(t, err)
		}
	}
	for i := range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		require.NoError(t, client.Call(ctx, server.id, transport.FamilyControl, "echo", i, nil))
		cancel()
	}
}
