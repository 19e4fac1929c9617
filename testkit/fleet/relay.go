// The UDP relay of a fleet: every daemon is reached through a port of the relay, so that a link can really be cut without root.

package fleet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// maxDatagram is larger than any QUIC datagram on loopback.
const maxDatagram = 64 << 10

// Relay forwards UDP datagrams between the parties of a fleet and drops those of cut links.
// A party is known by the address of its own socket; a party that was never
// announced (an agent) is called by the name given to Serve's unknown.
type Relay struct {
	mu      sync.Mutex
	names   map[netip.AddrPort]string // own socket address → party
	dials   map[netip.AddrPort]func(network, addr string) (net.Conn, error)
	cut     map[link]bool
	dropped map[link]uint64
	closed  bool
	conns   []net.Conn
	wg      sync.WaitGroup
}

// link is one direction between two parties.
type link struct{ from, to string }

// NewRelay returns a relay that serves nothing yet.
func NewRelay() *Relay {
	return &Relay{names: map[netip.AddrPort]string{}, dials: map[netip.AddrPort]func(network, addr string) (net.Conn, error){}, cut: map[link]bool{}, dropped: map[link]uint64{}}
}

// Announce tells the relay which party sends from a socket address.
func (r *Relay) Announce(addr netip.AddrPort, party string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[addr] = party
}

// Enter tells the relay that a party's socket is in another network, and how it is reached there.
func (r *Relay) Enter(back netip.AddrPort, dial func(network, addr string) (net.Conn, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials[back] = dial
}

func (r *Relay) dialer(back netip.AddrPort) func(network, addr string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if dial := r.dials[back]; dial != nil {
		return dial
	}
	return net.Dial
}

// Serve forwards datagrams that arrive at front to the party's socket at back,
// and its answers to whoever sent. Senders that were not announced count as unknown.
func (r *Relay) Serve(front netip.AddrPort, party string, back netip.AddrPort, unknown string) error {
	_, err := r.serve(front, party, back, unknown)
	return err
}

// ServeAlone is Serve for one sender, at a free port of its own.
func (r *Relay) ServeAlone(party string, back netip.AddrPort, sender string) (netip.AddrPort, error) {
	return r.serve(netip.AddrPortFrom(loopback, 0), party, back, sender)
}

func (r *Relay) serve(front netip.AddrPort, party string, back netip.AddrPort, unknown string) (netip.AddrPort, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(front))
	if err != nil {
		return front, fmt.Errorf("relay for %s: %w", party, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return front, errors.Join(net.ErrClosed, conn.Close())
	}
	r.conns = append(r.conns, conn)
	r.wg.Add(1)
	go r.forward(conn, party, back, unknown)
	return conn.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// forward is the loop of one front port. Each sender gets an upstream socket of
// its own, so that the party's answers find the way back.
func (r *Relay) forward(front *net.UDPConn, party string, back netip.AddrPort, unknown string) {
	defer r.wg.Done()
	upstream := map[netip.AddrPort]net.Conn{}
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := front.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP answer to an earlier datagram; the socket is fine
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		sender := r.nameOf(from, unknown)
		up := upstream[from]
		if up == nil {
			up, err = r.dialer(back)("udp", back.String())
			if err != nil || !r.adopt(up) {
				continue
			}
			upstream[from] = up
			r.wg.Add(1)
			go r.answer(up, front, from, party, sender)
		}
		if r.passes(link{sender, party}) {
			_, _ = up.Write(buf[:n]) // a dead party answers with ICMP: the sender sees silence, as on a real network
		}
	}
}

// answer carries datagrams of the party back to one sender.
func (r *Relay) answer(up net.Conn, front *net.UDPConn, to netip.AddrPort, party, sender string) {
	defer r.wg.Done()
	buf := make([]byte, maxDatagram)
	for {
		n, err := up.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if r.passes(link{party, sender}) {
			_, _ = front.WriteToUDPAddrPort(buf[:n], to)
		}
	}
}

func (r *Relay) nameOf(addr netip.AddrPort, unknown string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, ok := r.names[addr]; ok {
		return n
	}
	return unknown
}

func (r *Relay) adopt(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns = append(r.conns, c)
	return true
}

func (r *Relay) passes(l link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut[l] {
		r.dropped[l]++
		return false
	}
	return true
}

// Cut drops everything between two parties, in both directions.
func (r *Relay) Cut(a, b string) { r.set(true, link{a, b}, link{b, a}) }

// CutOneWay drops what from sends to to.
func (r *Relay) CutOneWay(from, to string) { r.set(true, link{from, to}) }

// Heal restores both directions between two parties.
func (r *Relay) Heal(a, b string) { r.set(false, link{a, b}, link{b, a}) }

// cutBetween reports whether anything between two parties is dropped.
func (r *Relay) cutBetween(a, b string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut[link{a, b}] || r.cut[link{b, a}]
}

// HealAll restores every link.
func (r *Relay) HealAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.cut)
}

func (r *Relay) set(cut bool, links ...link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range links {
		if cut {
			r.cut[l] = true
		} else {
			delete(r.cut, l)
		}
	}
}

// Dropped counts the datagrams that cuts swallowed so far: proof that a fault happened.
func (r *Relay) Dropped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n uint64
	for _, d := range r.dropped {
		n += d
	}
	return n
}

// Close ends all forwarding and returns after its goroutines ended.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	var errs []error
	for _, c := range r.conns {
		errs = append(errs, c.Close())
	}
	r.mu.Unlock()
	r.wg.Wait()
	return errors.Join(errs...)
}
