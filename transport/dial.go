// Dial: one attempt per peer at a time, shared by all who wait for it, with back-off between attempts.

package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// dialer remembers the attempts under way and how the last ones ended.
type dialer struct {
	mu       sync.Mutex
	max      time.Duration
	running  map[dialKey]*attempt
	failures map[dialKey]failure
}

// dialKey is what an attempt aims at: an address and, when known, the node that must be there.
type dialKey struct{ addr, id string }

type attempt struct {
	done chan struct{} // closed when c or err is set
	c    *conn
	err  *Error
}

type failure struct {
	n    int
	next time.Time // no attempt before
	err  *Error
}

// maxFailures bounds the remembered failures; they are only about politeness.
const maxFailures = 1024

func (d *dialer) init(l Limits) {
	d.max = l.BackoffMax
	d.running, d.failures = map[dialKey]*attempt{}, map[dialKey]failure{}
}

// connTo returns a live connection to a node, making one if needed.
func (e *Endpoint) connTo(ctx context.Context, n fsm.NodeID) (*conn, error) {
	if c := e.peers.get(peerKey{pki.KindNode, n.String()}); c != nil {
		return c, nil
	}
	addr, ok := e.resolve(n)
	if !ok {
		return nil, &Error{Code: CodeUnknownPeer, Message: n.String()}
	}
	return e.dial(ctx, dialKey{addr, n.String()})
}

// connAddr returns a live connection that was made to an address, making one if needed.
func (e *Endpoint) connAddr(ctx context.Context, addr string) (*conn, error) {
	if c := e.peers.dialled(addr); c != nil {
		return c, nil
	}
	return e.dial(ctx, dialKey{addr, ""})
}

func (e *Endpoint) resolve(n fsm.NodeID) (string, bool) {
	if f := e.resolver.Load(); f != nil {
		if addr, ok := (*f)(n); ok {
			return addr, true
		}
	}
	return e.peers.lastEndpoint(n)
}

// dial joins the attempt under way or begins one after the back-off. When ctx
// ends first, the attempt goes on for those who come later.
func (e *Endpoint) dial(ctx context.Context, k dialKey) (*conn, error) {
	for {
		a, wait, last := e.dials.join(k, e)
		if a == nil && wait == 0 {
			return nil, &Error{Code: CodeShutdown, Message: "this endpoint is closed"}
		}
		if a == nil {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
				timer.Stop()
				return nil, last
			case <-e.ctx.Done():
				timer.Stop()
				return nil, &Error{Code: CodeShutdown, Message: "this endpoint is closed"}
			}
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
			return a.c, nil
		case <-ctx.Done():
			return nil, &Error{Code: CodeTimeout, Message: "connecting to " + k.addr, Err: context.Cause(ctx)}
		}
	}
}

// join returns the attempt for k, or how long to wait before there may be one.
// Both are zero when the endpoint is closed.
func (d *dialer) join(k dialKey, e *Endpoint) (a *attempt, wait time.Duration, last *Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.running[k]; a != nil {
		return a, 0, nil
	}
	if f, ok := d.failures[k]; ok {
		if wait := time.Until(f.next); wait > 0 {
			return nil, wait, f.err
		}
	}
	a = &attempt{done: make(chan struct{})}
	if !e.tasks.Go(func() { e.attempt(k, a) }) {
		return nil, 0, nil
	}
	d.running[k] = a
	return a, 0, nil
}

func (d *dialer) finish(k dialKey, a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.running, k)
	if a.err == nil {
		delete(d.failures, k)
	} else {
		if len(d.failures) >= maxFailures {
			clear(d.failures)
		}
		f := d.failures[k]
		pause := min(d.max, backoffFirst<<min(f.n, 10))
		pause = pause/2 + rand.N(pause/2+1) // so that many peers do not come back in step
		d.failures[k] = failure{n: f.n + 1, next: time.Now().Add(pause), err: a.err}
	}
	close(a.done)
}

// failed is how many attempts in a row have failed.
func (d *dialer) failed(k dialKey) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures[k].n
}

// attempt makes one connection and then serves it.
func (e *Endpoint) attempt(k dialKey, a *attempt) {
	a.c, a.err = e.connect(k)
	e.dials.finish(k, a)
	if a.err == nil {
		e.live(a.c)
	}
}

func (e *Endpoint) connect(k dialKey) (*conn, *Error) {
	ctx, cancel := context.WithTimeout(e.ctx, 2*e.limits.Handshake)
	defer cancel()
	addr, err := resolveAddr(ctx, k.addr, e.dials.failed(k))
	if err != nil {
		return nil, &Error{Code: CodeNetwork, Message: "address " + k.addr, Err: err}
	}
	qc, err := e.tr.Dial(ctx, addr, e.clientTLS(), e.quic)
	if err != nil {
		return nil, asError(err)
	}
	c, refused := e.greet(ctx, qc, k.addr, k.id)
	if refused != nil {
		e.reject(qc, c.peer.Subject, refused)
		return nil, refused
	}
	return c, nil
}

// resolveAddr turns host:port into an address; only a name costs a lookup. Of a
// name's addresses each attempt takes the next: the first may be of a family or
// an interface on which nobody answers.
func resolveAddr(ctx context.Context, s string, attempt int) (net.Addr, error) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return net.UDPAddrFromAddrPort(ap), nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, errors.New("the name has no address")
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(inTurn(ips, attempt).Unmap(), uint16(n))), nil
}

func inTurn(ips []netip.Addr, attempt int) netip.Addr { return ips[attempt%len(ips)] }
