// What the router does to real packets, and a disk that is really full. Both need root; the relay's own fleets cover the rest.

package fleet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echoes answers every datagram at addr inside a network until the test ends.
func echoes(t *testing.T, ns *namespace, addr netip.AddrPort) {
	t.Helper()
	var conn *net.UDPConn
	require.NoError(t, ns.do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 16)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
			}
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		<-done
	})
}

func TestRouterCuts(t *testing.T) {
	if !Privileged() {
		t.Log("not privileged: there is no router here")
		return
	}
	r, err := newRouter()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.close()) })
	here, _, err := r.port()
	require.NoError(t, err)
	there, address, err := r.port()
	require.NoError(t, err)
	other, elsewhere, err := r.port()
	require.NoError(t, err)
	echoes(t, there, netip.AddrPortFrom(address, 7443))
	echoes(t, other, netip.AddrPortFrom(elsewhere, 7443))

	// ask sends until an answer or an error comes, or the patience is over.
	ask := func(to netip.Addr, patience time.Duration) error {
		c, err := here.dial("udp", netip.AddrPortFrom(to, 7443).String())
		require.NoError(t, err)
		defer c.Close()
		end := time.Now().Add(patience)
		for {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			_, err := c.Read(make([]byte, 1))
			if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
				return err
			}
		}
	}
	const long, short = 20 * time.Second, 200 * time.Millisecond
	pair := [2]int{0, 1}
	for how, want := range map[Cutting]error{Drop: os.ErrDeadlineExceeded, Refuse: os.ErrDeadlineExceeded, Forbid: syscall.EHOSTUNREACH, Unplug: os.ErrDeadlineExceeded} {
		require.NoError(t, ask(address, long), how)
		before, err := r.dropped()
		require.NoError(t, err)
		require.NoError(t, r.cut(how, pair, [2]int{1, 0}), "a link is cut once, whoever names it first")
		require.ErrorIs(t, ask(address, short), want, how)
		if how != Unplug { // it is this one's own link that is down
			require.NoError(t, ask(elsewhere, long), "%s: another link was cut too", how)
		}
		after, err := r.dropped()
		require.NoError(t, err)
		require.Greater(t, after, before, how)
		require.NoError(t, r.heal(r.cutPairs()...))
		require.Empty(t, r.cutPairs())
	}
	require.NoError(t, ask(address, long))
}

func TestDiskIsFull(t *testing.T) {
	if !Privileged() {
		t.Log("not privileged: no disk can be mounted")
		return
	}
	n := &Node{Name: "full", dir: t.TempDir()}
	_, err := n.FillDisk()
	require.ErrorContains(t, err, "no disk")
	n.disk, err = mountDisk(n.DataDir(), 1<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	kept := filepath.Join(n.DataDir(), "kept")
	require.NoError(t, os.WriteFile(kept, make([]byte, 100<<10), 0o600))
	filled, err := n.FillDisk()
	require.NoError(t, err)
	require.InDelta(t, (1<<20)-(100<<10), filled, 64<<10)
	require.ErrorIs(t, os.WriteFile(kept+"-not", make([]byte, 8<<10), 0o600), syscall.ENOSPC)
	require.NoError(t, n.FreeDisk())
	require.NoError(t, os.WriteFile(kept+"-now", make([]byte, 8<<10), 0o600))
}
