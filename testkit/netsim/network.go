// Package netsim is an in-memory packet network with faults. It runs no goroutine and lives in a testing/synctest bubble.
package netsim

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Network carries packets between the connections made by Listen. Faults are
// drawn from the seed, so one seed and one order of writes give one run. All
// methods are safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	rnd   *rand.Rand
	conns map[netip.AddrPort]*packetConn
	cuts  map[link]bool
	off   map[netip.AddrPort]bool
	bad   Weather
	min   time.Duration
	max   time.Duration
	lags  map[netip.AddrPort]time.Duration
	last  map[link]uint64    // the newest packet that arrived, in the order of sending
	rate  int                // bytes a second of one direction; 0 without bound
	busy  map[link]time.Time // until when a direction transmits what was sent before
	seq   uint64
	stats Stats
	spent map[link]int // packets that a cut of this direction has stopped

	loseRefusals bool
	rejected     map[netip.AddrPort]bool           // connected sockets are refused there
	behind       map[netip.AddrPort]netip.AddrPort // further sockets of a process, and the one whose links are theirs
	further      uint16                            // how many there were
}

// bufferTime is how much a direction with a rate holds back before it drops, as routers do.
const bufferTime = 100 * time.Millisecond

// link is one direction between two addresses.
type link struct{ from, to netip.AddrPort }

// Weather is what all links do to packets beside the delay that they always have.
type Weather struct {
	Loss      float64       // this share of the packets is dropped, 0 to 1
	Duplicate float64       // this share arrives twice
	Reorder   float64       // this share is held back by up to HoldBack, so that later ones overtake it
	HoldBack  time.Duration // at most
	Slow      time.Duration // every packet takes up to so much longer
}

// Stats counts packets since the network was made.
type Stats struct {
	Sent      int // written by somebody
	Delivered int // put into somebody's queue
	Lost      int // by the loss rate, a cut, a full queue or because nobody listens
	Refused   int // written by connected sockets to where nobody listens, or to where they are rejected

	Dropped    int // of the lost ones: by the loss rate
	Cut        int // by a cut, those in flight included
	Duplicated int // arrived a second time, as Weather demands
	Overtaken  int // held back as Weather demands, and arrived after a packet that was sent later
	Slowed     int // took longer as Weather or Lag demands
}

// New makes a network without faults or delay.
func New(seed uint64) *Network {
	return &Network{
		rnd:   rand.New(rand.NewPCG(seed, seed^0x5851f42d4c957f2d)),
		conns: map[netip.AddrPort]*packetConn{},
		cuts:  map[link]bool{},
		off:   map[netip.AddrPort]bool{},
		last:  map[link]uint64{},
		spent: map[link]int{},
		lags:  map[netip.AddrPort]time.Duration{},
		busy:  map[link]time.Time{},

		rejected: map[netip.AddrPort]bool{}, behind: map[netip.AddrPort]netip.AddrPort{},
	}
}

// Listen opens a socket at an ip:port. It panics when the text is no ip:port or
// the address is taken: both are mistakes of the test. A closed socket's address is free again.
func (n *Network) Listen(addr string) net.PacketConn {
	at := parse(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[at] != nil {
		panic(fmt.Sprintf("netsim: %s is in use", addr))
	}
	c := &packetConn{n: n, at: at, changed: make(chan struct{})}
	n.conns[at] = c
	return c
}

// Cut stops all packets between two addresses, in flight ones included.
func (n *Network) Cut(a, b string) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// CutOneWay stops the packets from one address to the other only.
func (n *Network) CutOneWay(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link{parse(from), parse(to)}] = true
}

// Isolate cuts an address off from all others that are open now.
func (n *Network) Isolate(addr string) {
	at := parse(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.conns {
		if other != at {
			n.cuts[link{at, other}], n.cuts[link{other, at}] = true, true
		}
	}
}

// Heal undoes the cuts between two addresses.
func (n *Network) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cuts, link{parse(a), parse(b)})
	delete(n.cuts, link{parse(b), parse(a)})
}

// HealAll undoes every cut.
func (n *Network) HealAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// Unplug stops all packets from and to an address, whoever the other side is,
// until Plug: like a process that is gone, it takes its leave of nobody, and what
// connected sockets send there is refused.
func (n *Network) Unplug(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off[parse(addr)] = true
}

// Plug undoes Unplug.
func (n *Network) Plug(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.off, parse(addr))
}

// Loss drops this share of the packets, 0 to 1.
func (n *Network) Loss(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bad.Loss = share
}

// SetWeather replaces what all links do to packets.
func (n *Network) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bad = w
}

// Delay holds each packet back for a time drawn from [least, most], so packets overtake each other.
func (n *Network) Delay(least, most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.min, n.max = least, max(least, most)
}

// Lag holds every packet from and to an address back by so much more, as a
// starved process does; 0 removes it.
func (n *Network) Lag(addr string, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lags[parse(addr)] = by
}

// Rate bounds each direction to so many bytes a second; 0 removes the bound. A
// direction that is more than a tenth of a second behind drops what comes on top.
func (n *Network) Rate(bytesPerSecond int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate = bytesPerSecond
	clear(n.busy)
}

// transmit gives the time a packet takes to leave, or false when it does not fit
// any more; the caller holds mu.
func (n *Network) transmit(l link, size int) (time.Duration, bool) {
	if n.rate <= 0 {
		return 0, true
	}
	now := time.Now()
	from := n.busy[l]
	if from.Before(now) {
		from = now
	}
	if from.Sub(now) > bufferTime {
		return 0, false
	}
	n.busy[l] = from.Add(time.Duration(size) * time.Second / time.Duration(n.rate))
	return n.busy[l].Sub(now), true
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// send routes one packet. The payload is copied.
func (n *Network) send(from, to netip.AddrPort, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Sent++
	// Drawn for every packet, so that a cut does not shift the later draws.
	lost := n.rnd.Float64() < n.bad.Loss
	delay := n.min + n.upTo(n.max-n.min)
	l := n.cable(link{from, to})
	slow := n.upTo(n.bad.Slow) + n.lags[l.from] + n.lags[l.to]
	held, hold := n.rnd.Float64() < n.bad.Reorder, n.upTo(n.bad.HoldBack)
	twice, again := n.rnd.Float64() < n.bad.Duplicate, n.upTo(2*n.max)
	switch {
	case n.stopped(l):
		n.stats.Lost++
		n.stop(l)
		return
	case n.conns[to] == nil:
		n.stats.Lost++
		return
	case lost:
		n.stats.Lost++
		n.stats.Dropped++
		return
	}
	leaves, fits := n.transmit(l, len(payload))
	if !fits {
		n.stats.Lost++
		return
	}
	if slow > 0 {
		n.stats.Slowed++
	}
	if held {
		slow += hold
	}
	p := packet{from: from, held: held, due: time.Now().Add(leaves + delay + slow), payload: append([]byte(nil), payload...)}
	if n.deliver(to, p) && twice {
		p.held, p.due = false, p.due.Add(again)
		if n.deliver(to, p) {
			n.stats.Duplicated++
		}
	}
}

// upTo draws a time below d; the caller holds mu.
func (n *Network) upTo(d time.Duration) time.Duration {
	return time.Duration(n.rnd.Float64() * float64(d))
}

// deliver puts a packet into its receiver's queue; the caller holds mu.
func (n *Network) deliver(to netip.AddrPort, p packet) bool {
	n.seq++
	p.seq = n.seq
	if !n.conns[to].push(p) {
		n.stats.Lost++
		return false
	}
	n.stats.Delivered++
	return true
}

// cable is the link that carries the packets of two sockets; the caller holds mu.
func (n *Network) cable(l link) link {
	if of, ok := n.behind[l.from]; ok {
		l.from = of
	}
	if of, ok := n.behind[l.to]; ok {
		l.to = of
	}
	return l
}

// stopped reports whether packets of this direction go nowhere; the caller holds mu.
func (n *Network) stopped(l link) bool { return n.cuts[l] || n.off[l.from] || n.off[l.to] }

// stop counts a packet that goes nowhere; the caller holds mu.
func (n *Network) stop(l link) {
	n.stats.Cut++
	if n.cuts[l] {
		n.spent[l]++
	}
}

// Stopped is how many packets from one address to the other were stopped by a cut so far.
func (n *Network) Stopped(from, to string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spent[link{parse(from), parse(to)}]
}

// arrive says whether a packet that is due reaches its reader, and notes the order.
func (n *Network) arrive(p *packet, to netip.AddrPort) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.cable(link{p.from, to})
	if n.stopped(l) {
		n.stop(l)
		return false
	}
	if p.seq < n.last[l] && p.held {
		n.stats.Overtaken++
	}
	n.last[l] = max(n.last[l], p.seq)
	return true
}

func (n *Network) leave(c *packetConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[c.at] == c {
		delete(n.conns, c.at)
		delete(n.behind, c.at)
	}
}

func parse(addr string) netip.AddrPort {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		panic("netsim: " + err.Error())
	}
	return at
}
