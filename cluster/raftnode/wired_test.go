// Nodes on a simulated network: real QUIC, real Raft transport, early election on.

package raftnode

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

// wires joins the members of a fleet. Use it from the test's goroutine.
type wires struct {
	*fleet
	sim  *netsim.Network
	ca   *pki.Authority
	open map[*member]wire

	mu     sync.Mutex
	ports  map[fsm.NodeID]string
	probes int
}

// wire is what a running node holds of the network.
type wire struct {
	conn     net.PacketConn
	endpoint *transport.Endpoint
}

// wired runs a test with three voters under the shipped timers.
func wired(t *testing.T, run func(t *testing.T, w *wires)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: pki.Validity{NotBefore: time.Unix(0, 0)}})
		require.NoError(t, err)
		w := &wires{fleet: newFleet(t), sim: netsim.New(1), ca: ca, ports: map[fsm.NodeID]string{}, open: map[*member]wire{}}
		w.cluster = ca.Cluster()
		w.sim.Delay(time.Millisecond, 3*time.Millisecond)
		w.member().start(bootstrap, w.plug(w.nodes[0]))
		for range 2 {
			m := w.join()
			w.promote(w.leader(), m)
		}
		w.settle()
		run(t, w)
		for _, m := range w.nodes {
			w.kill(m)
		}
	})
}

func (w *wires) member() *member {
	m := w.add()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[m.id] = fmt.Sprintf("10.0.0.%d:7443", len(w.nodes))
	return m
}

func (w *wires) find(n fsm.NodeID) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.ports[n]
	return at, ok
}

// join adds a learner.
func (w *wires) join() *member {
	w.t.Helper()
	leader, m := w.leader(), w.member()
	m.start(w.plug(m))
	w.admit(leader, m)
	return m
}

// settle waits until every node has followed one leader for a while.
func (w *wires) settle() {
	w.t.Helper()
	w.leader()
	<-time.After(3 * time.Second)
}

// plug connects a member's next process.
func (w *wires) plug(m *member) func(*Config) {
	return func(c *Config) {
		cert, err := w.ca.Issue(pki.Node(w.cluster, m.id), pki.Validity{NotBefore: time.Unix(0, 0)})
		require.NoError(w.t, err)
		identity, err := cert.Identity(w.ca)
		require.NoError(w.t, err)
		conn := w.sim.Listen(w.ports[m.id])
		endpoint, err := transport.Listen(transport.Config{
			Conn: conn, Identity: identity, Accept: pki.KindNode, Echo: true,
			Hello: func() transport.Hello {
				return transport.Hello{Cluster: w.cluster, ID: m.id.String(), Incarnation: c.Self.Incarnation, ProtocolMin: 1, ProtocolMax: 1}
			},
			Admit: func(transport.Peer, transport.Family, string) error { return nil },
		})
		require.NoError(w.t, err)
		endpoint.SetResolver(w.find)
		c.Timers = DefaultTimers()
		c.Control = endpoint
		c.Transport = rafttransport.New(rafttransport.Config{Endpoint: endpoint, Self: m.id})
		c.Early = &early.Outside{Resolve: w.find, Dial: func(addr string) (net.Conn, error) { return w.sim.Dial(w.probePort(), addr), nil }}
		w.open[m] = wire{conn, endpoint}
	}
}

func (w *wires) probePort() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probes++
	return fmt.Sprintf("10.1.%d.%d:40000", w.probes/250, w.probes%250+1)
}

// crash takes a node's port away, as the end of its process does; the rest of it runs on unheard.
func (w *wires) crash(m *member) {
	w.t.Helper()
	require.NoError(w.t, w.open[m].conn.Close())
}

// kill crashes a node, unless that has happened, and waits for what is left of it.
func (w *wires) kill(m *member) {
	w.t.Helper()
	if m.node == nil {
		return
	}
	_ = w.open[m].conn.Close()
	m.close()
	_ = w.open[m].endpoint.Close() // its socket is closed
}

// term is the highest term of the running nodes.
func (w *wires) term() (highest uint64) {
	for _, m := range w.nodes {
		if m.node != nil {
			highest = max(highest, m.node.raft.CurrentTerm())
		}
	}
	return highest
}
