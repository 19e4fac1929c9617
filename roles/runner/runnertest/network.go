// Package runnertest links agents to daemons: in memory, frame by frame through the real codec, or by sockets on loopback.
package runnertest

import (
	"context"
	"fmt"
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
func (d dialer) Dial(_ context.Context, addr string) (runner.Uplink, error) {
	f, err := d.open(addr)
	if err != nil {
		return nil, err
	}
	return uplink{Link: runner.NewLink(f), open: func() (runner.Frames, error) { return d.open(addr) }}, nil
}

// open opens a stream to the daemon and lets it serve the other end.
func (d dialer) open(addr string) (runner.Frames, error) {
	d.n.mu.Lock()
	defer d.n.mu.Unlock()
	to := d.n.daemons[addr]
	if to == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	a, b := framePipe()
	to.serving.Go(func() {
		defer context.AfterFunc(to.ctx, b.Close)()      // as a connection's end would
		_ = to.sessions.ServeStream(to.ctx, d.agent, b) // the agent sees the stream end
	})
	return a, nil
}
