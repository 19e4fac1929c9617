// Calls that follow each other on one stream.

package transport_test

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/stretchr/testify/require"
)

func TestStreamCarriesCallAfterCall(t *testing.T) {
	f := newForger(t)
	who := pki.Node(f.Cluster(), nodeID())
	server := node(t, f.Authority)
	server.Handle(transport.FamilyControl, "echo", echo)
	c, err := dialRaw(t, server.Addr(), f.honest(t, who))
	require.NoError(t, err)
	require.NoError(t, c.hello(helloOf(who)))

	s, err := c.OpenStreamSync(soon(t))
	require.NoError(t, err)
	require.NoError(t, s.SetReadDeadline(time.Now().Add(10*time.Second)))
	control := byte(transport.FamilyControl)
	status := func(method string, keep bool) byte {
		open := frame(control, 1, cborOf(t, map[int]any{1: true, 2: method, 4: keep}))
		_, err := s.Write(append(open, frame(control, 1, cborOf(t, method))...))
		require.NoError(t, err)
		var header [6]byte
		_, err = io.ReadFull(s, header[:])
		require.NoError(t, err)
		answer := make([]byte, binary.BigEndian.Uint32(header[2:]))
		_, err = io.ReadFull(s, answer)
		require.NoError(t, err)
		return answer[0]
	}
	require.Equal(t, byte(0x80), status("echo", true))
	require.Equal(t, byte(0x80), status("echo", true))
	require.Equal(t, byte(0), status("echo", false), "the caller wants no other call")
	_, err = s.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// TestAnswersBelongToTheirCalls: neither calls at the same time nor one that was
// given up may leave an answer to a later call.
func TestAnswersBelongToTheirCalls(t *testing.T) {
	ca := authority(t)
	a, b := node(t, ca), node(t, ca)
	knows(a, b)
	given, gone := make(chan struct{}), make(chan struct{})
	b.Handle(transport.FamilyControl, "echo", func(_ context.Context, _ transport.Peer, body []byte) (any, error) { return body, nil })
	b.Handle(transport.FamilyControl, "hang", func(ctx context.Context, _ transport.Peer, _ []byte) (any, error) {
		close(given)
		<-ctx.Done()
		close(gone)
		return []byte("late"), nil
	})
	round := func() {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				var back []byte
				if err := a.Call(soon(t), b.id, transport.FamilyControl, "echo", i, &back); err != nil || string(back) != string(cborOf(t, i)) {
					t.Errorf("call %d was answered %x, %v", i, back, err)
				}
			})
		}
		wg.Wait()
	}
	round()
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		<-given
		cancel()
	}()
	var own *transport.Error
	require.ErrorAs(t, a.Call(ctx, b.id, transport.FamilyControl, "hang", nil, nil), &own)
	require.True(t, own.OutcomeUnknown)
	select {
	case <-gone: // the handler hears that its caller gave up
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the handler still works")
	}
	round()
}
