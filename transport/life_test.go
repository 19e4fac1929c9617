// The life of connections: sharing, restarts, ends of certificates, failures.

package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/stretchr/testify/require"
)

func TestCallersShareOneConnection(t *testing.T) {
	ca := authority(t)
	var hellos atomic.Int64
	server := listen(t, options{
		identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode,
		hello: func(*transport.Hello) { hellos.Add(1) },
	})
	var remotes sync.Map
	server.Handle(transport.FamilyControl, "who", func(_ context.Context, p transport.Peer, _ []byte) (any, error) {
		remotes.Store(p.Hello.Incarnation, true)
		return nil, nil
	})
	client := node(t, ca)
	knows(client, server)
	var wg sync.WaitGroup
	errs := make([]error, 64)
	for i := range errs {
		wg.Go(func() { errs[i] = client.Call(soon(t), server.id, transport.FamilyControl, "who", nil, nil) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, int64(1), hellos.Load())

	// The dialled side uses the same connection, though no address of the client is known to it.
	client.Handle(transport.FamilyControl, "echo", echo)
	require.NoError(t, server.Call(soon(t), client.id, transport.FamilyControl, "echo", 1, nil))
	require.Equal(t, int64(1), hellos.Load())
}

// TestQuicTransportRestartOnTheSamePortIsNoticed: the survivor's connection leads to a dead
// process; the new process on the same port makes it say so at once.
func TestQuicTransportRestartOnTheSamePortIsNoticed(t *testing.T) {
	ca := authority(t)
	id := identity(t, ca, pki.Node(ca.Cluster(), nodeID()))
	conn := loopback(t)
	first := listen(t, options{identity: id, accept: pki.KindNode, conn: killable{conn}})
	first.Handle(transport.FamilyControl, "echo", echo)
	survivor := node(t, ca)
	knows(survivor, first)
	require.NoError(t, survivor.Call(soon(t), first.id, transport.FamilyControl, "echo", 1, nil))

	require.NoError(t, conn.Close()) // the process dies without a word
	again, err := net.ListenPacket("udp", conn.LocalAddr().String())
	require.NoError(t, err)
	second := listen(t, options{identity: id, accept: pki.KindNode, conn: again})
	second.Handle(transport.FamilyControl, "echo", echo)
	second.HandleStream(transport.FamilyRaft, func(context.Context, transport.Peer, *transport.Stream) {})

	began := time.Now()
	s, err := survivor.OpenStream(soon(t), second.id, transport.FamilyRaft)
	require.NoError(t, err, "an opening that meets a dead connection is repeated on a new one")
	s.Close()
	require.NoError(t, survivor.Call(soon(t), second.id, transport.FamilyControl, "echo", 1, nil))
	require.Less(t, time.Since(began), 2*time.Second)
}

// killable hides that its socket was closed before, so that the endpoint can still end in peace.
type killable struct{ net.PacketConn }

func (k killable) Close() error {
	_ = k.PacketConn.Close()
	return nil
}

func TestConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(1)
		ca := authority(t)
		brief, err := ca.Issue(pki.Node(ca.Cluster(), nodeID()), pki.Validity{NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		briefly, err := brief.Identity(ca)
		require.NoError(t, err)
		server := listen(t, options{conn: sim.Listen("10.0.0.1:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		client := listen(t, options{conn: sim.Listen("10.0.0.2:1"), identity: briefly, accept: pki.KindNode})
		knows(client, server)
		server.Handle(transport.FamilyControl, "echo", echo)
		require.NoError(t, client.Call(soon(t), server.id, transport.FamilyControl, "echo", 1, nil))

		began := time.Now()
		require.Equal(t, transport.CodeExpired, await(t, server.refused, 2*time.Hour).Code)
		require.WithinDuration(t, began.Add(time.Hour), time.Now(), 2*time.Second)
		require.Equal(t, transport.CodeExpired, await(t, client.refused, time.Minute).Code)
		<-time.After(time.Second) // in its very last instant a certificate is valid
		require.ErrorIs(t, client.Call(soon(t), server.id, transport.FamilyControl, "echo", 1, nil), &transport.Error{Code: transport.CodeExpired})
		for _, s := range []*side{client, server} {
			require.NoError(t, s.Close())
		}
	})
}

// await waits longer than next does.
func await(t *testing.T, r *refusals, d time.Duration) *transport.Error {
	t.Helper()
	select {
	case <-r.hit:
		r.hit <- struct{}{}
	case <-time.After(d):
		require.FailNow(t, "no refusal was reported")
	}
	return r.next(t)
}

// TestTransportFailureMapping: what fails is a TransportFailure, and says whether the request may have arrived.
func TestTransportFailureMapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(2)
		ca := authority(t)
		client := listen(t, options{conn: sim.Listen("10.0.0.1:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		server := listen(t, options{conn: sim.Listen("10.0.0.2:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		defer func() {
			require.NoError(t, client.Close())
			require.NoError(t, server.Close())
		}()
		fails := func(err error, code transport.Code, unknown bool) {
			t.Helper()
			var e *transport.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, code, e.Code, "%v", err)
			require.Equal(t, unknown, e.OutcomeUnknown)
			require.False(t, e.Final())
			kind, fy, _, _, out := e.WireFields()
			require.Equal(t, uint8(8), kind)
			require.Contains(t, fy, "FY-NET-")
			require.Equal(t, unknown, out)
		}

		fails(client.Call(soon(t), nodeID(), transport.FamilyControl, "x", nil, nil), transport.CodeUnknownPeer, false)

		began := time.Now()
		_, err := client.CallAddr(soon(t), "10.0.0.9:1", transport.FamilyControl, "x", nil, nil)
		fails(err, transport.CodeNetwork, false)
		require.Less(t, time.Since(began), 3*time.Second, "nobody answers: known before the caller's deadline")

		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = client.CallAddr(short, "10.0.0.8:1", transport.FamilyControl, "x", nil, nil)
		fails(err, transport.CodeTimeout, false)

		knows(client, server)
		entered := make(chan struct{}, 1)
		server.Handle(transport.FamilyControl, "hang", func(ctx context.Context, _ transport.Peer, _ []byte) (any, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		result := make(chan error, 1)
		go func() { result <- client.Call(soon(t), server.id, transport.FamilyControl, "hang", nil, nil) }()
		<-entered
		sim.Cut("10.0.0.1:1", "10.0.0.2:1")
		began = time.Now()
		fails(<-result, transport.CodeNetwork, true)
		require.Less(t, time.Since(began), 5*time.Second, "a silent connection is dead after the idle bound")

		sim.HealAll()
		server.Handle(transport.FamilyControl, "echo", echo)
		require.Eventually(t, func() bool {
			return client.Call(soon(t), server.id, transport.FamilyControl, "echo", nil, nil) == nil
		}, time.Minute, time.Millisecond)
		short, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = client.Call(short, server.id, transport.FamilyControl, "hang", nil, nil)
		fails(err, transport.CodeTimeout, true)
	})
}

// TestReconnectBacksOff: an unreachable peer costs a bounded number of attempts however often it is called.
func TestReconnectBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(3)
		ca := authority(t)
		client := listen(t, options{conn: sim.Listen("10.0.0.1:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		// An agents' socket refuses a node at once, so only the back-off slows the attempts.
		server := listen(t, options{conn: sim.Listen("10.0.0.2:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindAgent})
		until := time.Now().Add(time.Minute)
		for time.Now().Before(until) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := client.CallAddr(ctx, "10.0.0.2:1", transport.FamilyControl, "x", nil, nil)
			cancel()
			require.ErrorIs(t, err, &transport.Error{Code: transport.CodeWrongKind}, "also the call that only waited says why")
		}
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
		attempts := len(server.refused.hit)
		require.Greater(t, attempts, 60)
		require.Less(t, attempts, 260, "at least 250 ms apart once backed off")
	})
}

// TestQuicTransportLeavesNothingBehind: peers come and go, half of them without a word.
func TestQuicTransportLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := netsim.New(4)
		ca := authority(t)
		server := listen(t, options{conn: sim.Listen("10.0.0.1:1"), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
		server.Handle(transport.FamilyControl, "echo", echo)
		for i := range 100 {
			addr := fmt.Sprintf("10.0.1.%d:1", i+1)
			client := listen(t, options{conn: sim.Listen(addr), identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
			knows(client, server)
			require.NoError(t, client.Call(soon(t), server.id, transport.FamilyControl, "echo", i, nil))
			if i%2 == 0 {
				sim.Cut(addr, "10.0.0.1:1")
			}
			require.NoError(t, client.Close())
		}
		require.NoError(t, server.Close())
		// The bubble ends only when every goroutine of it has.
	})
}

func TestStreamsCarryFramesBothWays(t *testing.T) {
	f := authority(t)
	server, client := node(t, f), node(t, f)
	knows(client, server)
	ended := make(chan error, 1)
	server.HandleStream(transport.FamilyDeploy, func(ctx context.Context, from transport.Peer, s *transport.Stream) {
		for {
			b, err := s.ReadFrame(ctx)
			if err != nil {
				ended <- err
				return
			}
			if err := s.WriteFrame(ctx, append([]byte(from.Subject.ID), b...)); err != nil {
				ended <- err
				return
			}
		}
	})
	s, err := client.OpenStream(soon(t), server.id, transport.FamilyDeploy)
	require.NoError(t, err)
	require.Equal(t, server.id, s.Peer().Node())
	for _, n := range []int{0, 1, 100 << 10} {
		require.NoError(t, s.WriteFrame(soon(t), make([]byte, n)))
		b, err := s.ReadFrame(soon(t))
		require.NoError(t, err)
		require.Len(t, b, len(client.id.String())+n)
	}
	require.ErrorIs(t, s.WriteFrame(soon(t), make([]byte, transport.FamilyDeploy.MaxFrame()+1)), &transport.Error{Code: transport.CodeTooLarge})

	// A context that ends, ends the wait; the stream then is of no more use.
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.ReadFrame(ctx)
		got <- err
	}()
	cancel()
	require.ErrorIs(t, <-got, &transport.Error{Code: transport.CodeTimeout})
	require.NoError(t, s.CloseWrite())
	require.Equal(t, io.EOF, <-ended)
	s.Close()

	_, err = client.OpenStream(soon(t), server.id, transport.FamilyRaft)
	require.ErrorIs(t, err, &transport.Error{Code: transport.CodeNoHandler})
}

func TestLastHelloIsAnAddress(t *testing.T) {
	ca := authority(t)
	server, client := node(t, ca), node(t, ca)
	knows(client, server)
	server.Handle(transport.FamilyControl, "echo", echo)
	client.Handle(transport.FamilyControl, "echo", echo)
	require.NoError(t, client.Call(soon(t), server.id, transport.FamilyControl, "echo", 1, nil))
	server.SetResolver(func(fsm.NodeID) (string, bool) { return "", false })
	client.CloseNode(server.id, "test")
	require.Equal(t, transport.CodeRemoved, server.refused.next(t).Code)
	require.NoError(t, server.Call(soon(t), client.id, transport.FamilyControl, "echo", 1, nil), "dialled at the endpoint of the last hello")
}
