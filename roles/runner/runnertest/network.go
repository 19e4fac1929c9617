// Package runnertest links agents to daemons in memory, frame by frame through the real codec.
package runnertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// Network stands for the agents' sockets of some daemons. It is safe for concurrent use.
type Network struct {
	mu      sync.Mutex
	daemons map[string]*daemon
}

type daemon struct {
	sessions *runner.Sessions
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup
}

// NewNetwork returns a network without daemons.
func NewNetwork() *Network { return &Network{daemons: map[string]*daemon{}} }

// Start serves and runs the sessions of a daemon under an address, until Stop.
func (n *Network) Start(addr string, s *runner.Sessions) {
	ctx, cancel := context.WithCancel(context.Background())
	d := &daemon{sessions: s, ctx: ctx, cancel: cancel}
	d.serving.Go(func() { _ = s.Run(ctx) }) // nil by contract
	n.mu.Lock()
	defer n.mu.Unlock()
	n.daemons[addr] = d
}

// Stop ends a daemon with every link to it and waits for it; later dials are refused.
func (n *Network) Stop(addr string) {
	n.mu.Lock()
	d := n.daemons[addr]
	delete(n.daemons, addr)
	n.mu.Unlock()
	if d != nil {
		d.cancel()
		d.serving.Wait()
	}
}

// Close stops every daemon.
func (n *Network) Close() {
	n.mu.Lock()
	addrs := make([]string, 0, len(n.daemons))
	for a := range n.daemons {
		addrs = append(addrs, a)
	}
	n.mu.Unlock()
	for _, a := range addrs {
		n.Stop(a)
	}
}

// Dialer dials as the agent with this certificate id.
func (n *Network) Dialer(agent string) runner.Dialer { return dialer{n, agent} }

type dialer struct {
	n     *Network
	agent string
}

// Dial connects to a daemon that was started under the address.
func (d dialer) Dial(_ context.Context, addr string) (runner.Link, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	to := d.n.daemons[addr]
	if to == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	a, b := Pipe()
	to.serving.Go(func() { _ = to.sessions.Serve(to.ctx, d.agent, b) }) // the agent sees the link end
	return a, nil
}

// Pipe returns two ends of a link. Closing one ends both.
func Pipe() (a, b runner.Link) {
	closed := make(chan struct{})
	once := &sync.Once{}
	ab, ba := make(chan []byte, 64), make(chan []byte, 64)
	return &end{out: ab, in: ba, closed: closed, once: once}, &end{out: ba, in: ab, closed: closed, once: once}
}

type end struct {
	out    chan<- []byte
	in     <-chan []byte
	closed chan struct{}
	once   *sync.Once
}

var errClosed = errors.New("the link is closed")

func (e *end) Send(ctx context.Context, m runner.Message) error {
	b, err := runner.EncodeMessage(m)
	if err != nil {
		return err
	}
	select {
	case <-e.closed:
		return errClosed
	default:
	}
	select {
	case e.out <- b:
		return nil
	case <-e.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *end) Receive(ctx context.Context) (runner.Message, error) {
	select {
	case b := <-e.in:
		return runner.DecodeMessage(b)
	default:
	}
	select {
	case b := <-e.in:
		return runner.DecodeMessage(b)
	case <-e.closed:
		return runner.Message{}, io.EOF
	case <-ctx.Done():
		return runner.Message{}, ctx.Err()
	}
}

func (e *end) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}
