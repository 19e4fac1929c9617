// Registry: the live connections by peer, newest first, within bounds.

package transport

import (
	"slices"
	"sync"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// peerKey names a peer whatever its address.
type peerKey struct {
	kind pki.Kind
	id   string
}

func keyOf(s pki.Subject) peerKey { return peerKey{s.Kind, s.ID} }

// maxRemembered bounds the nodes whose last endpoint is remembered.
const maxRemembered = 1024

// registry holds connections whose hello was answered.
type registry struct {
	mu        sync.Mutex
	perPeer   int
	most      int
	n         int
	conns     map[peerKey][]*conn // newest last
	endpoints map[fsm.NodeID]string
}

func (r *registry) init(l Limits) {
	r.perPeer, r.most = l.PerPeer, l.Connections
	r.conns, r.endpoints = map[peerKey][]*conn{}, map[fsm.NodeID]string{}
}

// add registers a connection or says why there is no room. It returns the
// connections of the peer's earlier processes: those are dead.
func (r *registry) add(c *conn) (dead []*conn, err *Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := keyOf(c.peer.Subject)
	mine := 0
	for _, o := range r.conns[k] {
		switch {
		case o.peer.Hello.Incarnation != c.peer.Hello.Incarnation:
			dead = append(dead, o)
		case o.alive():
			mine++
		}
	}
	if mine >= r.perPeer {
		return nil, Refuse(CodeBusy, "%d connections of %s are open, at most %d", mine, c.peer.Subject.ID, r.perPeer)
	}
	if r.n >= r.most {
		return nil, Refuse(CodeBusy, "%d connections are open, at most %d", r.n, r.most)
	}
	r.conns[k] = append(r.conns[k], c)
	r.n++
	if id := c.peer.Node(); !id.IsZero() && c.peer.Hello.Endpoint != "" {
		if _, known := r.endpoints[id]; known || len(r.endpoints) < maxRemembered {
			r.endpoints[id] = c.peer.Hello.Endpoint
		}
	}
	return dead, nil
}

func (r *registry) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := keyOf(c.peer.Subject)
	i := slices.Index(r.conns[k], c)
	if i < 0 {
		return
	}
	r.n--
	if r.conns[k] = slices.Delete(r.conns[k], i, i+1); len(r.conns[k]) == 0 {
		delete(r.conns, k)
	}
}

// get returns the newest live connection of a peer, or nil.
func (r *registry) get(k peerKey) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range slices.Backward(r.conns[k]) {
		if c.alive() {
			return c
		}
	}
	return nil
}

// dialled returns a live connection that was made to this address, or nil.
func (r *registry) dialled(addr string) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cs := range r.conns {
		for _, c := range cs {
			if c.dialled == addr && c.alive() {
				return c
			}
		}
	}
	return nil
}

func (r *registry) of(k peerKey) []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conns[k])
}

func (r *registry) all() []*conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*conn
	for _, cs := range r.conns {
		out = append(out, cs...)
	}
	return out
}

func (r *registry) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *registry) lastEndpoint(n fsm.NodeID) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.endpoints[n]
	return a, ok
}
