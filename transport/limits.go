// Limits: the bounds of one endpoint (§219).

package transport

import (
	"time"

	"github.com/forgeyard/forgeyard/transport/pki"
)

// Limits bounds an endpoint. A zero field takes its default.
type Limits struct {
	Handshakes  int   // incoming connections that have not answered the hello yet; 64
	Connections int   // connections in total, both directions; 256 on the node socket, 4096 on the agents'
	PerPeer     int   // connections of one peer, both directions; 4
	Streams     int64 // streams a peer may have open at once on one connection; 256

	Handshake  time.Duration // QUIC handshake, and then the hello exchange; 2 s each
	Idle       time.Duration // silence after which a connection is dead; 3 s between nodes, 10 s with agents
	KeepAlive  time.Duration // an idle connection is probed this often; 1 s
	BackoffMax time.Duration // longest pause between two attempts to reach a peer; 500 ms
}

// DefaultCallTimeout bounds calls and stream openings whose context has no deadline (§184).
const DefaultCallTimeout = 5 * time.Second

// MaxCallTimeout bounds how long a handler may work for one call, whatever its caller asks.
const MaxCallTimeout = time.Minute

const backoffFirst = 20 * time.Millisecond

func (l Limits) withDefaults(agents bool) Limits {
	connections, idle := 256, 3*time.Second
	if agents {
		connections, idle = 4096, 10*time.Second
	}
	def(&l.Handshakes, 64)
	def(&l.Connections, connections)
	def(&l.PerPeer, 4)
	def(&l.Streams, 256)
	def(&l.Handshake, 2*time.Second)
	def(&l.Idle, idle)
	def(&l.KeepAlive, time.Second)
	def(&l.BackoffMax, 500*time.Millisecond)
	return l
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// withAgents reports whether an endpoint talks to agents rather than between nodes.
func withAgents(accept, own pki.Kind) bool { return accept == pki.KindAgent || own == pki.KindAgent }
