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
	if n.stopped(link{from, to}) {
		return false, false
	}
	refused = n.conns[to] == nil || n.rejected[to]
	if refused {
		n.stats.Refused++
	}
	return refused, refused && !n.loseRefusals
}

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
