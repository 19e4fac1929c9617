// Harness: real raft nodes over real QUIC, on loopback or on a simulated network.

package rafttransport_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// early is before the time at which synctest bubbles begin.
func early() pki.Validity { return pki.Validity{NotBefore: time.Unix(0, 0)} }

func newID() fsm.NodeID { return fsm.NodeID(ulid.Make()) }

func authority(t testing.TB) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: early()})
	require.NoError(t, err)
	return ca
}

func loopback(t testing.TB) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	return c
}

// directory says where nodes are.
type directory struct {
	mu   sync.Mutex
	addr map[fsm.NodeID]string
}

func (d *directory) find(n fsm.NodeID) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.addr[n]
	return a, ok
}

// refusal is what an endpoint reported.
type refusal struct {
	peer pki.Subject
	err  *transport.Error
}

// peer is an endpoint of a node, with or without raft on it.
type peer struct {
	*transport.Endpoint
	id       fsm.NodeID
	identity *pki.Identity
	refused  chan refusal
}

// open starts the endpoint of a node on a socket and enters it in the directory.
func open(t testing.TB, ca *pki.Authority, dir *directory, id fsm.NodeID, conn net.PacketConn) *peer {
	t.Helper()
	cert, err := ca.Issue(pki.Node(ca.Cluster(), id), early())
	require.NoError(t, err)
	identity, err := cert.Identity(ca)
	require.NoError(t, err)
	return openAs(t, identity, dir, conn)
}

// openAs starts an endpoint under an identity.
func openAs(t testing.TB, identity *pki.Identity, dir *directory, conn net.PacketConn) *peer {
	t.Helper()
	id, _ := identity.Subject().NodeID()
	p := &peer{id: id, identity: identity, refused: make(chan refusal, 64)}
	incarnation := fsm.IncarnationID(ulid.Make())
	var err error
	p.Endpoint, err = transport.Listen(transport.Config{
		Conn: conn, Identity: identity, Accept: pki.KindNode,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: identity.Subject().Cluster, ID: id.String(), Incarnation: incarnation, ProtocolMin: 1, ProtocolMax: 1}
		},
		Admit: func(transport.Peer, transport.Family, string) error { return nil },
		Rejected: func(_ net.Addr, s pki.Subject, err *transport.Error) {
			select {
			case p.refused <- refusal{s, err}:
			default:
			}
		},
	})
	require.NoError(t, err)
	p.SetResolver(dir.find)
	dir.mu.Lock()
	dir.addr[id] = conn.LocalAddr().String()
	dir.mu.Unlock()
	return p
}

// memory is a state machine that keeps every command; its snapshot has padding.
type memory struct {
	mu      sync.Mutex
	applied [][]byte
	padding int
	bytes   int // of the snapshot restored last
}

func (m *memory) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = append(m.applied, l.Data)
	return len(m.applied)
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.applied)
}

func (m *memory) restored() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

func (m *memory) Snapshot() (raft.FSMSnapshot, error) { return padded(m.padding), nil }

func (m *memory) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes = len(b)
	return r.Close()
}

// padded is a snapshot of so many bytes.
type padded int

func (p padded) Persist(s raft.SnapshotSink) error {
	if _, err := s.Write(bytes.Repeat([]byte{7}, int(p))); err != nil {
		return err
	}
	return s.Close()
}

func (padded) Release() {}

// member is a node with raft on it.
type member struct {
	*peer
	trans *rafttransport.Transport
	raft  *raft.Raft
	fsm   *memory
}

// Raft's timers: in a bubble nothing is ever late; on a busy machine much is.
const (
	bubbleTimer = 300 * time.Millisecond
	realTimer   = 2 * time.Second
)

// start runs raft on an endpoint. A nil configuration starts a node that waits to be added.
func start(t *testing.T, p *peer, cfg *raft.Configuration, padding int, timer time.Duration) *member {
	t.Helper()
	m := &member{peer: p, fsm: &memory{padding: padding}}
	m.trans = rafttransport.New(rafttransport.Config{
		Endpoint: p.Endpoint, Self: p.id, HeartbeatTimeout: timer, ElectionTimeout: timer,
	})
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(p.id.String())
	rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = timer, timer, timer/2
	rc.CommitTimeout = 20 * time.Millisecond
	rc.TrailingLogs = 8
	rc.Logger = hclog.NewNullLogger()
	store := raft.NewInmemStore()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(t.TempDir(), 2, rc.Logger)
	require.NoError(t, err)
	if cfg != nil {
		require.NoError(t, raft.BootstrapCluster(rc, store, store, snaps, m.trans, *cfg))
	}
	m.raft, err = raft.NewRaft(rc, m.fsm, store, store, snaps, m.trans)
	require.NoError(t, err)
	return m
}

// stop ends raft, which closes its transport, and then the endpoint.
func (m *member) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, m.raft.Shutdown().Error())
	require.NoError(t, m.Endpoint.Close())
}

// trio starts three nodes that know each other; they stop with the returned function.
func trio(t *testing.T, padding int, timer time.Duration, socket func(int) net.PacketConn) (members []*member, dir *directory, ca *pki.Authority) {
	t.Helper()
	ca = authority(t)
	dir = &directory{addr: map[fsm.NodeID]string{}}
	var cfg raft.Configuration
	var peers []*peer
	for i := range 3 {
		p := open(t, ca, dir, newID(), socket(i))
		peers = append(peers, p)
		cfg.Servers = append(cfg.Servers, raft.Server{ID: raft.ServerID(p.id.String()), Address: raft.ServerAddress(p.id.String())})
	}
	for _, p := range peers {
		members = append(members, start(t, p, &cfg, padding, timer))
	}
	return members, dir, ca
}

func ids(ms []*member) (out []fsm.NodeID) {
	for _, m := range ms {
		out = append(out, m.id)
	}
	return out
}

// leader waits until exactly one of the members leads and the others follow it.
func leader(t *testing.T, ms []*member) *member {
	t.Helper()
	var found *member
	require.Eventually(t, func() bool {
		found = nil
		for _, m := range ms {
			if m.raft.State() == raft.Leader {
				if found != nil {
					return false
				}
				found = m
			}
		}
		if found == nil {
			return false
		}
		for _, m := range ms {
			if _, id := m.raft.LeaderWithID(); string(id) != found.id.String() {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond)
	return found
}

func apply(t *testing.T, m *member, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, m.raft.Apply(fmt.Appendf(nil, "command %d", i), time.Second).Error())
	}
}
