// Faults that fleets like this met in the field, by kind; testkit/FIELD_FAULTS.md lists them all.

package transport_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// fixedConn hides the socket's buffers, which the QUIC library would enlarge.
type fixedConn struct{ net.PacketConn }

// A kernel that grants tiny UDP buffers loses packets in bursts. Endpoints start
// all the same, and calls are answered in time while megabytes are on their way.
func TestFieldFaultQuicTransport(t *testing.T) {
	t.Run("FB-049", func(t *testing.T) {
		ca := authority(t)
		tiny := func() *side {
			c := loopback(t)
			require.NoError(t, c.(*net.UDPConn).SetReadBuffer(8<<10))
			require.NoError(t, c.(*net.UDPConn).SetWriteBuffer(8<<10))
			return listen(t, options{conn: fixedConn{c}, identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		}
		a, b := tiny(), tiny()
		knows(a, b)
		b.Handle(transport.FamilyControl, "ping", echo)
		block := bytes.Repeat([]byte{7}, 256<<10)
		const blocks = 16
		got := make(chan int, 1)
		b.HandleStream(transport.FamilyRaft, func(ctx context.Context, _ transport.Peer, s *transport.Stream) {
			n := 0
			for {
				frame, err := s.ReadFrame(ctx)
				if err == io.EOF { //nolint:errorlint // the bare end
					break
				}
				if err != nil {
					return
				}
				n += len(frame)
			}
			got <- n
		})
		all, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := a.OpenStream(soon(t), b.id, transport.FamilyRaft)
		require.NoError(t, err)
		var bulk sync.WaitGroup
		bulk.Go(func() {
			for range blocks {
				if err := s.WriteFrame(all, block); err != nil {
					t.Error(err)
					return
				}
			}
			_ = s.CloseWrite()
		})
		for done := false; !done; {
			select {
			case n := <-got:
				require.Equal(t, blocks*len(block), n)
				done = true
			default:
				ctx, answered := context.WithTimeout(all, 5*time.Second)
				var reply string
				require.NoError(t, a.Call(ctx, b.id, transport.FamilyControl, "ping", "x", &reply))
				answered()
			}
		}
		bulk.Wait()
		s.Close()
	})
}
