// Harness: a small cluster of endpoints on loopback, and certificates that no authority should issue.

package transport_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
)

// early is before the time at which synctest bubbles begin.
func early() pki.Validity { return pki.Validity{NotBefore: time.Unix(0, 0)} }

func nodeID() fsm.NodeID { return fsm.NodeID(ulid.Make()) }

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: early()})
	require.NoError(t, err)
	return ca
}

func identity(t *testing.T, ca *pki.Authority, s pki.Subject) *pki.Identity {
	t.Helper()
	i, err := ca.Issue(s, early())
	require.NoError(t, err)
	id, err := i.Identity(ca)
	require.NoError(t, err)
	return id
}

// refusals collects what an endpoint reports as refused.
type refusals struct {
	mu  sync.Mutex
	all []*transport.Error
	hit chan struct{}
}

func newRefusals() *refusals { return &refusals{hit: make(chan struct{}, 1024)} }

func (r *refusals) add(_ net.Addr, _ pki.Subject, err *transport.Error) {
	r.mu.Lock()
	r.all = append(r.all, err)
	r.mu.Unlock()
	r.hit <- struct{}{}
}

// next waits for a refusal.
func (r *refusals) next(t *testing.T) *transport.Error {
	t.Helper()
	select {
	case <-r.hit:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no refusal was reported")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.all[0]
	r.all = r.all[1:]
	return e
}

// side is one endpoint under test.
type side struct {
	*transport.Endpoint
	id      fsm.NodeID
	refused *refusals
}

// options vary an endpoint under test.
type options struct {
	conn     net.PacketConn
	identity *pki.Identity
	accept   pki.Kind
	hello    func(*transport.Hello)
	admit    func(transport.Peer, transport.Family, string) error
	limits   transport.Limits
	now      func() time.Time
}

func loopback(t *testing.T) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	return c
}

func admitAll(transport.Peer, transport.Family, string) error { return nil }

// listen starts an endpoint; it is closed with the test.
func listen(t *testing.T, o options) *side {
	t.Helper()
	if o.conn == nil {
		o.conn = loopback(t)
	}
	if o.admit == nil {
		o.admit = admitAll
	}
	s := &side{refused: newRefusals()}
	s.id, _ = o.identity.Subject().NodeID()
	incarnation := fsm.IncarnationID(ulid.Make())
	var err error
	s.Endpoint, err = transport.Listen(transport.Config{
		Conn: o.conn, Identity: o.identity, Accept: o.accept, Admit: o.admit, Limits: o.limits, Now: o.now,
		Rejected: s.refused.add,
		Hello: func() transport.Hello {
			h := transport.Hello{
				Cluster: o.identity.Subject().Cluster, Generation: 1, ID: o.identity.Subject().ID,
				Incarnation: incarnation, ProtocolMin: 1, ProtocolMax: 1, Endpoint: o.conn.LocalAddr().String(),
			}
			if o.hello != nil {
				o.hello(&h)
			}
			return h
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// node starts a node's endpoint that accepts nodes.
func node(t *testing.T, ca *pki.Authority) *side {
	t.Helper()
	return listen(t, options{identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode})
}

// knows lets a find b.
func knows(a *side, peers ...*side) {
	a.SetResolver(func(n fsm.NodeID) (string, bool) {
		for _, p := range peers {
			if p.id == n {
				return p.Addr().String(), true
			}
		}
		return "", false
	})
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// echo answers with the request.
func echo(_ context.Context, _ transport.Peer, body []byte) (any, error) { return string(body), nil }
