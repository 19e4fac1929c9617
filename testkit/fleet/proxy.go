// The TCP proxy of a fleet: each daemon reaches PostgreSQL through one of its own, so that one daemon alone can lose the database.

package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Proxy forwards TCP connections to a target ("tcp" or "unix") until it is cut.
type Proxy struct {
	network, target string
	listener        net.Listener
	reads           bool // follows the protocol of PostgreSQL
	dial            func(network, addr string) (net.Conn, error)

	mu     sync.Mutex
	cut    bool
	cuts   uint64
	conns  map[net.Conn]struct{}
	loss   *Loss
	lost   uint64
	wg     sync.WaitGroup
	closed bool
}

// listenProxy listens on a port ("127.0.0.1:0" picks one) or a socket; dial reaches the target, reads makes LoseReply possible.
func listenProxy(listen, addr, network, target string, dial func(network, addr string) (net.Conn, error), reads bool) (*Proxy, error) {
	l, err := net.Listen(listen, addr)
	if err != nil {
		return nil, fmt.Errorf("proxy to %s: %w", target, err)
	}
	p := &Proxy{network: network, target: target, listener: l, dial: dial, reads: reads, conns: map[net.Conn]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr is the port that clients use.
func (p *Proxy) Addr() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.adopt(c) {
			continue
		}
		p.wg.Add(1)
		go p.serve(c)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer p.release(client)
	server, err := p.dial(p.network, p.target)
	if err != nil || !p.adopt(server) {
		return
	}
	defer p.release(server)
	up := func() { _, _ = io.Copy(server, client) }
	down := func() { _, _ = io.Copy(client, server) }
	if p.reads {
		w, from, answers := newWire(p), bufio.NewReader(client), bufio.NewReader(server)
		up = func() { _ = w.up(server, from) }
		down = func() { _ = w.down(client, answers) }
	}
	done := make(chan struct{})
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		defer close(done)
		up()
		_ = server.Close()
	}()
	down()
	_ = client.Close()
	<-done
}

// adopt takes a connection into care; while cut (or closed) it is reset instead.
func (p *Proxy) adopt(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) release(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// Cut resets every connection and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		p.cuts++
		reset(c)
	}
}

// Heal lets connections through again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Resets counts the connections that cuts ended: proof that a fault happened.
func (p *Proxy) Resets() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Close ends everything and returns after the goroutines ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	err := p.listener.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reset closes with RST, so that the peer sees a lost connection and not a polite end.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
