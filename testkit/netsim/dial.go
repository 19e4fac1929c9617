// Dial: a connected socket, which hears that nobody listens where its packets arrive.

package netsim

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// dialled is a connected socket of the network.
type dialled struct {
	*packetConn
	to netip.AddrPort

	mu      sync.Mutex
	refused bool // a packet found nobody, and nobody was told yet
}

// Dial opens a socket at an address of its own that talks to one other. Where
// nobody listens its packets are refused, as a kernel does, unless refusals are
// lost (LoseRefusals) or the way is cut.
func (n *Network) Dial(from, to string) net.Conn {
	return &dialled{packetConn: n.Listen(from).(*packetConn), to: parse(to)}
}

// firstFurther is the lowest port of a further socket, as the first of those that a kernel chooses itself.
const firstFurther = 49152

// DialAs is Dial for the process that listens at an address: whatever cuts that
// address off, delays it or unplugs it does so to this socket as well.
func (n *Network) DialAs(process, to string) net.Conn {
	of := parse(process)
	n.mu.Lock()
	var at netip.AddrPort
	for taken := true; taken; _, taken = n.behind[at] {
		at = netip.AddrPortFrom(of.Addr(), firstFurther+n.further%(1<<16-firstFurther))
		n.further++
	}
	n.behind[at] = of
	n.mu.Unlock()
	return n.Dial(at.String(), to)
}

// LoseRefusals makes every refusal vanish, as a filter of ICMP does.
func (n *Network) LoseRefusals(lose bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loseRefusals = lose
}

// Reject refuses what connected sockets send to an address, whoever listens
// there; packets of other sockets pass. It is what a filter does that does not
// know a protocol.
func (n *Network) Reject(addr string, reject bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if reject {
		n.rejected[parse(addr)] = true
	} else {
		delete(n.rejected, parse(addr))
	}
}

// refuses reports whether a packet of a connected socket is refused, and whether
// the sender hears of it.
func (n *Network) refuses(from, to netip.AddrPort) (refused, heard bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.cable(link{from, to})
	if n.cuts[l] || n.off[l.from] {
		return false, false
	}
	if n.conns[to] != nil && !n.off[l.to] && !n.rejected[to] {
		return false, false
	}
	n.stats.Refused++
	return true, !n.loseRefusals && !n.cuts[link{l.to, l.from}] && !n.loses() && !n.loses()
}

// loses draws whether the weather loses a packet; the caller holds mu.
func (n *Network) loses() bool { return n.bad.Loss > 0 && n.rnd.Float64() < n.bad.Loss }

// RemoteAddr is the address that the socket talks to.
func (c *dialled) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.to) }

// Write sends one packet. It fails for a refusal that nobody has read.
func (c *dialled) Write(b []byte) (int, error) {
	if err := c.pending("write"); err != nil {
		return 0, err
	}
	refused, heard := c.n.refuses(c.at, c.to)
	if refused {
		if heard {
			c.mu.Lock()
			c.refused = true
			c.mu.Unlock()
			c.nudge()
		}
		return len(b), nil
	}
	return c.WriteTo(b, net.UDPAddrFromAddrPort(c.to))
}

// Read waits for the next packet, or for a refusal.
func (c *dialled) Read(b []byte) (int, error) {
	for {
		if err := c.pending("read"); err != nil {
			return 0, err
		}
		p, wait, changed, err := c.next()
		if err != nil {
			return 0, &net.OpError{Op: "read", Net: "netsim", Addr: c.RemoteAddr(), Err: err}
		}
		if p != nil {
			if p.from == c.to && c.n.arrive(p, c.at) {
				return copy(b, p.payload), nil
			}
			continue
		}
		if wait < 0 {
			<-changed
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}

// pending is the refusal that was not told yet.
func (c *dialled) pending(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refused {
		return nil
	}
	c.refused = false
	return &net.OpError{Op: op, Net: "netsim", Addr: c.RemoteAddr(), Err: fmt.Errorf("refused: %w", syscall.ECONNREFUSED)}
}

// nudge wakes a waiting reader.
func (c *dialled) nudge() {
	c.packetConn.mu.Lock()
	defer c.packetConn.mu.Unlock()
	c.wake()
}
