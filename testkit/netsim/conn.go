// Conn: one socket of the network. Its reader waits for the next packet that is due; nothing runs in between.

package netsim

import (
	"container/heap"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// queueLimit is how many packets wait for a reader, like a kernel's buffer, in packets.
const queueLimit = 8192

// packet is one datagram on its way.
type packet struct {
	from    netip.AddrPort
	due     time.Time
	seq     uint64
	held    bool // back, by the weather
	payload []byte
}

// queue orders packets by the time they are due, then by the order of sending.
type queue []packet

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(packet)) }
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	*q = old[:len(old)-1]
	return p
}

// packetConn implements net.PacketConn.
type packetConn struct {
	n  *Network
	at netip.AddrPort

	mu       sync.Mutex
	queue    queue
	deadline time.Time
	closed   bool
	changed  chan struct{} // closed and replaced when a waiting reader must look again
}

// push queues a packet; false when the queue is full or the socket closed.
func (c *packetConn) push(p packet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) >= queueLimit {
		return false
	}
	heap.Push(&c.queue, p)
	c.wake()
	return true
}

// wake lets waiting readers look again; the caller holds mu.
func (c *packetConn) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// ReadFrom waits for the next packet that is due, until the deadline or Close.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		p, wait, changed, err := c.next()
		if err != nil {
			return 0, nil, &net.OpError{Op: "read", Net: "netsim", Addr: c.LocalAddr(), Err: err}
		}
		if p != nil {
			if !c.n.arrive(p, c.at) {
				continue // it was in flight when the link was cut
			}
			return copy(b, p.payload), net.UDPAddrFromAddrPort(p.from), nil
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

// next returns a packet that is due, or how long nothing can happen; a negative
// time means until something changes.
func (c *packetConn) next() (*packet, time.Duration, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, nil, net.ErrClosed
	}
	now := time.Now()
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		return nil, 0, nil, os.ErrDeadlineExceeded
	}
	wait := time.Duration(-1)
	if len(c.queue) > 0 {
		if wait = c.queue[0].due.Sub(now); wait <= 0 {
			p := heap.Pop(&c.queue).(packet)
			return &p, 0, nil, nil
		}
	}
	if !c.deadline.IsZero() {
		if left := c.deadline.Sub(now); wait < 0 || left < wait {
			wait = left
		}
	}
	return nil, wait, c.changed, nil
}

// WriteTo sends a packet; like UDP it never tells whether anybody got it.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, &net.OpError{Op: "write", Net: "netsim", Addr: c.LocalAddr(), Err: net.ErrClosed}
	}
	u, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, &net.OpError{Op: "write", Net: "netsim", Addr: to, Err: net.InvalidAddrError("not a UDP address")}
	}
	ap := u.AddrPort()
	c.n.send(c.at, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), b)
	return len(b), nil
}

// Close frees the address and wakes the readers.
func (c *packetConn) Close() error {
	c.n.leave(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &net.OpError{Op: "close", Net: "netsim", Addr: net.UDPAddrFromAddrPort(c.at), Err: net.ErrClosed}
	}
	c.closed = true
	c.queue = nil
	c.wake()
	return nil
}

// LocalAddr is the address given to Listen.
func (c *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.at) }

// SetReadDeadline ends waiting reads at t; the zero time means never.
func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.deadline = t
	c.wake()
	return nil
}

// SetWriteDeadline has no effect: writes never wait.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is SetReadDeadline: writes never wait.
func (c *packetConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadBuffer and SetWriteBuffer have no effect: the queue has a fixed limit.
// They exist because quic-go warns about sockets without them.
func (c *packetConn) SetReadBuffer(int) error { return nil }

// SetWriteBuffer has no effect.
func (c *packetConn) SetWriteBuffer(int) error { return nil }
