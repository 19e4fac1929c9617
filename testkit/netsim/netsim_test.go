// The network keeps its promises: order by delay, loss by seed, cuts, deadlines, and nothing left behind.

package netsim_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/stretchr/testify/require"
)

const (
	addrA = "10.0.0.1:1"
	addrB = "10.0.0.2:1"
)

// pair runs a test in a bubble with two sockets.
func pair(t *testing.T, seed uint64, f func(t *testing.T, n *netsim.Network, a, b net.PacketConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := netsim.New(seed)
		a, b := n.Listen(addrA), n.Listen(addrB)
		defer func() {
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}()
		f(t, n, a, b)
	})
}

func send(t *testing.T, from, to net.PacketConn, text string) {
	t.Helper()
	n, err := from.WriteTo([]byte(text), to.LocalAddr())
	require.NoError(t, err)
	require.Equal(t, len(text), n)
}

// receive reads one packet, waiting at most a virtual second.
func receive(t *testing.T, c net.PacketConn) (string, error) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
	b := make([]byte, 1500)
	n, _, err := c.ReadFrom(b)
	return string(b[:n]), err
}

func TestPacketsArriveAfterTheirDelay(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.Delay(20*time.Millisecond, 20*time.Millisecond)
		began := time.Now()
		send(t, a, b, "one")
		send(t, a, b, "two")
		for _, want := range []string{"one", "two"} {
			got, err := receive(t, b)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, 20*time.Millisecond, time.Since(began))
		}
		n.Delay(0, 0)
		buf := make([]byte, 2)
		send(t, b, a, "back")
		size, from, err := a.ReadFrom(buf)
		require.NoError(t, err)
		require.Equal(t, 2, size, "a short buffer cuts the packet, as UDP does")
		require.Equal(t, b.LocalAddr().String(), from.String())
	})
}

func TestLagHoldsBothDirectionsOfOneAddress(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.Delay(20*time.Millisecond, 20*time.Millisecond)
		for _, step := range []struct{ lag, took time.Duration }{{600 * time.Millisecond, 620 * time.Millisecond}, {0, 20 * time.Millisecond}} {
			n.Lag(a.LocalAddr().String(), step.lag)
			for _, dir := range [][2]net.PacketConn{{a, b}, {b, a}} {
				began := time.Now()
				send(t, dir[0], dir[1], "late")
				_, err := receive(t, dir[1])
				require.NoError(t, err)
				require.Equal(t, step.took, time.Since(began))
			}
		}
	})
}

func TestDelayReorders(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.Delay(0, 100*time.Millisecond)
		for i := range 50 {
			send(t, a, b, fmt.Sprint(i))
		}
		ordered := true
		for i := range 50 {
			got, err := receive(t, b)
			require.NoError(t, err)
			ordered = ordered && got == fmt.Sprint(i)
		}
		require.False(t, ordered)
	})
}

func TestLossFollowsTheSeed(t *testing.T) {
	lost := func(seed uint64) (out []string) {
		pair(t, seed, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
			n.Loss(0.3)
			for i := range 200 {
				send(t, a, b, fmt.Sprint(i))
			}
			for {
				got, err := receive(t, b)
				if err != nil {
					break
				}
				out = append(out, got)
			}
			s := n.Stats()
			require.Equal(t, netsim.Stats{Sent: 200, Delivered: len(out), Lost: 200 - len(out), Dropped: 200 - len(out)}, s)
		})
		return out
	}
	first := lost(7)
	require.Equal(t, first, lost(7))
	require.NotEqual(t, first, lost(8))
	require.InDelta(t, 140, len(first), 30)
}

func TestRateBoundsADirection(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		n.Rate(10_000)
		began := time.Now()
		for range 20 { // two tenths of a second of data: half of it fits
			send(t, a, b, string(make([]byte, 100)))
		}
		send(t, b, a, string(make([]byte, 100)))
		got := 0
		for {
			if _, err := receive(t, b); err != nil {
				break
			}
			got++
			require.Equal(t, time.Duration(got)*10*time.Millisecond, time.Since(began))
		}
		require.Equal(t, 11, got)
		_, err := receive(t, a)
		require.NoError(t, err, "the other direction is not affected")
	})
}

func TestCuts(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		arrives := func(from, to net.PacketConn) bool {
			send(t, from, to, "x")
			_, err := receive(t, to)
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
			return err == nil
		}
		n.CutOneWay(addrA, addrB)
		require.False(t, arrives(a, b))
		require.True(t, arrives(b, a))
		n.Heal(addrA, addrB)
		require.True(t, arrives(a, b))
		n.Cut(addrA, addrB)
		require.False(t, arrives(a, b))
		require.False(t, arrives(b, a))
		n.HealAll()
		n.Isolate(addrB)
		require.False(t, arrives(a, b))
		require.False(t, arrives(b, a))
		n.HealAll()

		n.Delay(time.Minute, time.Minute)
		send(t, a, b, "in flight")
		n.Cut(addrA, addrB)
		require.NoError(t, b.SetReadDeadline(time.Now().Add(2*time.Minute)))
		_, _, err := b.ReadFrom(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "a cut also stops what is under way")
	})
}

func TestDeadlineAndCloseEndAWaitingRead(t *testing.T) {
	pair(t, 1, func(t *testing.T, n *netsim.Network, a, b net.PacketConn) {
		read := func() <-chan error {
			done := make(chan error, 1)
			go func() {
				_, _, err := a.ReadFrom(make([]byte, 10))
				done <- err
			}()
			synctest.Wait()
			return done
		}
		done := read()
		require.NoError(t, a.SetReadDeadline(time.Now()))
		err := <-done
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var ne net.Error
		require.True(t, errors.As(err, &ne) && ne.Timeout())

		require.NoError(t, a.SetDeadline(time.Time{}))
		done = read()
		c := n.Listen("10.0.0.3:1")
		send(t, b, c, "nobody reads this")
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Close(), net.ErrClosed)
		_, err = c.WriteTo([]byte("x"), a.LocalAddr())
		require.ErrorIs(t, err, net.ErrClosed)
		send(t, b, a, "wake")
		require.NoError(t, <-done)
		n.Listen("10.0.0.3:1").Close() // the address is free again
	})
}

func TestCloseEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := netsim.New(1)
		c := n.Listen(addrA)
		done := make(chan error, 1)
		go func() {
			_, _, err := c.ReadFrom(make([]byte, 10))
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-done, net.ErrClosed)
	})
}

func TestListenRefusesMistakes(t *testing.T) {
	n := netsim.New(1)
	c := n.Listen(addrA)
	defer func() { require.NoError(t, c.Close()) }()
	require.Panics(t, func() { n.Listen(addrA) })
	require.Panics(t, func() { n.Listen("localhost") })
}
