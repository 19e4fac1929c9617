// Snapshots: they take as long as they need, stop when they stall, and delay nobody.

package rafttransport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// joinBySnapshot adds a node that must be sent a snapshot of size bytes, and
// calls watch until the node has it.
func joinBySnapshot(t *testing.T, size int, timer time.Duration, socket func(int) net.PacketConn, slow func(), watch func(l *member, term uint64, voters []fsm.NodeID)) {
	t.Helper()
	ms, dir, ca := trio(t, size, timer, socket)
	defer func() {
		for _, m := range ms {
			m.stop(t)
		}
	}()
	l := leader(t, ms)
	apply(t, l, 40)
	require.NoError(t, l.raft.Snapshot().Error()) // the entries before it are gone from the log
	term := l.raft.CurrentTerm()

	late := start(t, open(t, ca, dir, newID(), socket(3)), nil, 0, timer)
	ms = append(ms, late)
	slow()
	require.NoError(t, l.raft.AddNonvoter(raft.ServerID(late.id.String()), raft.ServerAddress(late.id.String()), 0, 10*time.Second).Error())
	voters := ids(ms[:3])
	require.Eventually(t, func() bool {
		watch(l, term, voters)
		return late.fsm.restored() == size
	}, 2*time.Minute, 5*time.Millisecond)
	apply(t, l, 1)
	require.Eventually(t, func() bool { return late.raft.AppliedIndex() == l.raft.LastIndex() }, 2*time.Minute, 5*time.Millisecond)
}

func TestSnapshotOverLoopback(t *testing.T) {
	joinBySnapshot(t, 1<<20, realTimer, func(int) net.PacketConn { return loopback(t) }, func() {}, func(*member, uint64, []fsm.NodeID) {})
}

// TestSnapshotDoesNotStallHeartbeat: on a link that the snapshot fills for
// seconds, the node that receives it still hears its leader in time.
func TestSnapshotDoesNotStallHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, rate = 4 << 20, 1 << 20
		sim := netsim.New(9)
		sim.Delay(time.Millisecond, 2*time.Millisecond)
		addrs := []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"}
		var began time.Time
		var worst, oldest time.Duration
		joinBySnapshot(t, size, bubbleTimer, func(i int) net.PacketConn { return sim.Listen(addrs[i]) },
			func() { began = time.Now(); sim.Rate(rate) },
			func(l *member, term uint64, voters []fsm.NodeID) {
				require.Equal(t, term, l.raft.CurrentTerm(), "the transfer cost an election")
				oldest = max(oldest, time.Since(l.trans.Confirmed(term, voters)))
				for _, p := range l.trans.Peers() {
					worst = max(worst, time.Since(p.LastContact))
				}
			})
		require.Greater(t, time.Since(began), size/rate*time.Second*9/10, "the link was never full")
		t.Logf("oldest confirmation %s, longest silence of any node %s", oldest, worst)
		require.Less(t, oldest, bubbleTimer)
		require.Less(t, worst, 2*bubbleTimer)
	})
}

// slowly yields its bytes one chunk at a time with pauses.
type slowly struct {
	r     io.Reader
	pause time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	<-time.After(s.pause)
	return s.r.Read(p[:min(len(p), 32<<10)])
}

// sink is a raft that only takes snapshots.
type sink struct {
	trans *rafttransport.Transport
	got   chan error
	size  chan int
}

func TestReplicationSnapshotIsBoundedByProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Second
		sim := netsim.New(8)
		sim.Delay(time.Millisecond, time.Millisecond)
		ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
		from, to := open(t, ca, dir, newID(), sim.Listen("10.0.0.1:1")), open(t, ca, dir, newID(), sim.Listen("10.0.0.2:1"))
		sender := rafttransport.New(rafttransport.Config{Endpoint: from.Endpoint, Self: from.id, SnapshotIdle: idle})
		s := &sink{rafttransport.New(rafttransport.Config{Endpoint: to.Endpoint, Self: to.id, SnapshotIdle: idle}), make(chan error, 1), make(chan int, 1)}
		limit := -1 // how much of the next snapshot raft reads; -1 all
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case rpc := <-s.trans.Consumer():
					var r io.Reader = rpc.Reader
					if limit >= 0 {
						r = io.LimitReader(r, int64(limit))
					}
					b, err := io.ReadAll(r)
					s.size <- len(b)
					s.got <- err
					h := raft.RPCHeader{ProtocolVersion: 3, ID: []byte(to.id.String()), Addr: []byte(to.id.String())}
					if err != nil {
						rpc.Respond(nil, err)
						continue
					}
					rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: h, Term: 1, Success: true}, nil)
				case <-stop:
					return
				}
			}
		}()
		defer func() {
			close(stop)
			for _, c := range []io.Closer{sender, s.trans, from, to} {
				require.NoError(t, c.Close())
			}
		}()
		send := func(size int64, data io.Reader) error {
			q := &raft.InstallSnapshotRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(from.id.String()), Addr: []byte(from.id.String())},
				Term:      1, LastLogIndex: 1, LastLogTerm: 1, Size: size,
			}
			resp := &raft.InstallSnapshotResponse{}
			err := sender.InstallSnapshot(raft.ServerID(to.id.String()), raft.ServerAddress(to.id.String()), q, resp, data)
			if err == nil && !resp.Success {
				return errors.New("no success")
			}
			return err
		}
		bytesOf := func(n int) io.Reader { return bytes.NewReader(bytes.Repeat([]byte{1}, n)) }

		// Minutes in total are fine as long as something moves.
		began := time.Now()
		require.NoError(t, send(1<<20, slowly{bytesOf(1 << 20), idle / 3}))
		require.Greater(t, time.Since(began), time.Minute)
		require.Equal(t, 1<<20, <-s.size)
		require.NoError(t, <-s.got)

		// Exactly Size bytes are taken, also when the sender's reader has more.
		require.NoError(t, send(1000, bytesOf(5000)))
		require.Equal(t, 1000, <-s.size)
		require.NoError(t, <-s.got)
		// What raft leaves unread is drained, so that its answer arrives.
		limit = 10
		require.NoError(t, send(300<<10, bytesOf(300<<10)))
		require.Equal(t, 10, <-s.size)
		require.NoError(t, <-s.got)
		limit = -1

		// Data that is too short fails both sides.
		require.ErrorContains(t, send(1000, slowly{bytesOf(999), time.Second}), "1 bytes short")
		<-s.size
		require.Error(t, <-s.got)

		// The link dies in the middle: both sides give up, neither waits for ever.
		cut := slowly{bytesOf(1 << 20), time.Second}
		go func() {
			<-time.After(5 * time.Second)
			sim.Cut("10.0.0.1:1", "10.0.0.2:1")
		}()
		began = time.Now()
		require.Error(t, send(1<<20, cut))
		<-s.size
		require.Error(t, <-s.got)
		require.Less(t, time.Since(began), 5*time.Second+2*idle)
	})
}

// TestRestartedFollowerIsServedAtOnce: the leader's streams lead to a dead
// process; the new one on the same port takes over within the bound.
func TestRestartedFollowerIsServedAtOnce(t *testing.T) {
	ca, dir := authority(t), &directory{addr: map[fsm.NodeID]string{}}
	l := leading(open(t, ca, dir, newID(), loopback(t)), 5*time.Second)
	defer l.stop(t)
	conn := loopback(t)
	first := open(t, ca, dir, newID(), killable{conn})
	f := follow(first, agree)
	require.NoError(t, l.append(f.id, 1, 0, 0))
	require.NoError(t, l.append(f.id, 1, 1, 1))

	require.NoError(t, conn.Close())
	again, err := net.ListenPacket("udp", conn.LocalAddr().String())
	require.NoError(t, err)
	g := follow(openAs(t, first.identity, dir, again), agree)
	defer g.stop(t)
	began := time.Now()
	require.NoError(t, l.append(f.id, 1, 0, 0), "a dead stream is replaced within the request")
	require.NoError(t, l.append(f.id, 1, 1, 1))
	require.Less(t, time.Since(began), 2*time.Second)
	f.stop(t)
}

// killable hides that its socket was closed before, so that the endpoint can still end in peace.
type killable struct{ net.PacketConn }

func (k killable) Close() error {
	_ = k.PacketConn.Close()
	return nil
}
