// A fleet of real engines over real QUIC on a simulated network, in a bubble's virtual time, with tokens and audit in memory.

package membership

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 60 * time.Second // virtual

// memTokens is a cluster.TokenStore with the rules of the real one.
type memTokens struct {
	mu   sync.Mutex
	rows map[[32]byte]*tokenRow
	down error
}

type tokenRow struct {
	cluster fsm.ClusterID
	node    fsm.NodeID
	expires time.Time
	used    [32]byte
}

var errTokenRefused = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-TEST-001", Message: "refused by the store"}

func (s *memTokens) CreateToken(_ context.Context, hash [32]byte, c fsm.ClusterID, n fsm.NodeID, ttl time.Duration, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[hash] = &tokenRow{cluster: c, node: n, expires: time.Now().Add(ttl)}
	return s.down
}

func (s *memTokens) RedeemToken(_ context.Context, hash [32]byte, c fsm.ClusterID, n fsm.NodeID, certificate [32]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.rows[hash]
	switch {
	case s.down != nil:
		return s.down
	case row == nil, row.cluster != c, row.node != n:
		return errTokenRefused
	case row.used == certificate:
		return nil
	case row.used != [32]byte{}, time.Now().After(row.expires):
		return errTokenRefused
	}
	row.used = certificate
	return nil
}

type memAudit struct {
	mu   sync.Mutex
	rows []cluster.AuditRecord
	down bool // PostgreSQL is away: no answer comes
}

func (a *memAudit) Record(ctx context.Context, r cluster.AuditRecord) error {
	a.mu.Lock()
	down := a.down
	a.mu.Unlock()
	if down {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, r)
	return nil
}

// outcomes of an action, in order.
func (a *memAudit) outcomes(action string) (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rows {
		if r.Action == action {
			out = append(out, r.Outcome)
		}
	}
	return out
}

type fleet struct {
	t      *testing.T
	ca     *pki.Authority
	net    *netsim.Network
	logs   slog.Handler
	tokens *memTokens
	audit  *memAudit
	nodes  []*machine
}

// machine is one node: everything a daemon makes for membership.
type machine struct {
	f        *fleet
	id       fsm.NodeID
	name     string
	addr     string
	dir      string
	identity *pki.Identity
	self     cluster.Identity

	admission *Admission
	directory *Directory
	endpoint  *transport.Endpoint
	node      *raftnode.Node
	registrar *Registrar
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	var out io.Writer = io.Discard
	if os.Getenv("FORGEYARD_TEST_LOG") != "" {
		out = os.Stderr
	}
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: early()})
	require.NoError(t, err)
	return &fleet{
		t: t, ca: ca, net: netsim.New(1), logs: slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}),
		tokens: &memTokens{rows: map[[32]byte]*tokenRow{}}, audit: &memAudit{},
	}
}

// early is before the time at which bubbles begin.
func early() pki.Validity { return pki.Validity{NotBefore: time.Unix(0, 0)} }

func (f *fleet) close() {
	for _, m := range f.nodes {
		m.stop()
	}
}

func (f *fleet) add() *machine {
	f.t.Helper()
	return f.addAs(cluster.NewNodeID())
}

func (f *fleet) addAs(id fsm.NodeID) *machine {
	f.t.Helper()
	i := len(f.nodes) + 1
	m := &machine{f: f, id: id, name: fmt.Sprintf("node-%d", i), addr: fmt.Sprintf("10.0.0.%d:7443", i)}
	m.dir = filepath.Join(f.t.TempDir(), m.name)
	cert, err := f.ca.Issue(pki.Node(f.ca.Cluster(), id), early())
	require.NoError(f.t, err)
	m.identity, err = cert.Identity(f.ca)
	require.NoError(f.t, err)
	f.nodes = append(f.nodes, m)
	return m
}

func (m *machine) member() fsm.Member {
	return fsm.Member{
		Node: m.id, Incarnation: m.self.Incarnation, Name: m.name, Role: fsm.Learner, State: fsm.Joining,
		Endpoint: fsm.Endpoint(m.addr), Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "test",
	}
}

// start brings the node up as a daemon does: policy, endpoint, Raft transport, engine, registrar.
func (m *machine) start(bootstrap bool) {
	m.f.t.Helper()
	m.listen()
	m.open(bootstrap)
}

// listen is a start up to the endpoint, open the rest of it.
func (m *machine) listen() {
	t := m.f.t
	t.Helper()
	m.self = cluster.Identity{Cluster: m.f.ca.Cluster(), Node: m.id, Incarnation: cluster.NewIncarnationID(), Name: m.name}
	log := slog.New(m.f.logs).With("node", m.name)
	m.admission = NewAdmission(m.self, log, time.Now)
	m.directory = NewDirectory()
	var err error
	m.endpoint, err = transport.Listen(transport.Config{
		Conn: m.f.net.Listen(m.addr), Identity: m.identity, Accept: pki.KindNode, Admit: m.admission.Admit, Logger: log,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: m.self.Cluster, ID: m.id.String(), Incarnation: m.self.Incarnation, ProtocolMin: 1, ProtocolMax: 1, Endpoint: m.addr}
		},
	})
	require.NoError(t, err)
	m.endpoint.SetResolver(m.directory.Resolve)
}

func (m *machine) open(bootstrap bool) {
	t, log := m.f.t, slog.New(m.f.logs).With("node", m.name)
	t.Helper()
	var err error
	m.node, err = raftnode.Open(raftnode.Config{
		Self: m.self, Member: m.member(), Dir: filepath.Join(m.dir, "raft"), IdentityDir: filepath.Join(m.dir, "identity"),
		Transport: rafttransport.New(rafttransport.Config{Endpoint: m.endpoint, Self: m.id, Logger: log}),
		Control:   m.endpoint, Bootstrap: bootstrap, ClusterName: "test", Logger: log,
		Exit: func(_ int, reason string) { t.Errorf("%s would exit: %s", m.name, reason) },
	})
	require.NoError(t, err)
	m.directory.Bind(func() fsm.View { return m.node.View().View })
	m.registrar = Start(Config{
		Engine: m.node, Control: m.endpoint, Tokens: m.f.tokens, Audit: m.f.audit, Protocol: fsm.VersionRange{Min: 1, Max: 1}, Logger: log,
	})
	m.admission.Bind(m.node, m.endpoint)
}

func (m *machine) stop() {
	if m.endpoint == nil {
		return
	}
	if m.node != nil {
		m.registrar.Close()
	}
	m.admission.Close()
	if m.node != nil {
		require.NoError(m.f.t, m.node.Close())
	}
	require.NoError(m.f.t, m.endpoint.Close())
	m.node, m.endpoint = nil, nil
}

func (m *machine) joiner(seeds ...*machine) *Joiner {
	j := &Joiner{Control: m.endpoint, Member: m.member(), Logger: slog.New(m.f.logs).With("node", m.name)}
	for _, s := range seeds {
		j.Seeds = append(j.Seeds, s.addr)
	}
	return j
}

// join goes through the whole of it, as a starting daemon does.
func (m *machine) join(token string, seeds ...*machine) error {
	ctx, cancel := context.WithTimeout(m.f.t.Context(), patience)
	defer cancel()
	j := m.joiner(seeds...)
	v, err := j.Join(ctx, Token(token))
	if err != nil {
		return err
	}
	m.admission.Trust(v)
	m.directory.Learn(v)
	return j.Settle(ctx, m.admission.Trust, func() bool { _, ok := m.node.View().Member(m.id); return ok })
}

// invite makes a token for m through the node at.
func (f *fleet) invite(at, m *machine) string {
	f.t.Helper()
	added, err := at.registrar.Add(f.t.Context(), AddRequest{Node: m.id, Name: m.name}, "the test")
	require.NoError(f.t, err)
	return added.Token
}

// active waits until the member is an Active learner in everybody's eyes.
func (f *fleet) active(at, m *machine) {
	f.t.Helper()
	f.eventually(func() bool { x, ok := at.node.View().Member(m.id); return ok && x.State == fsm.Active })
}

func (f *fleet) eventually(ok func() bool) {
	f.t.Helper()
	require.Eventually(f.t, ok, patience, 10*time.Millisecond)
}

// leader waits for the one node that leads.
func (f *fleet) leader() *machine {
	f.t.Helper()
	var found *machine
	f.eventually(func() bool {
		found = nil
		for _, m := range f.nodes {
			if m.node == nil {
				continue
			}
			if _, leads := m.node.Leadership(); leads {
				found = m
			}
		}
		return found != nil
	})
	return found
}

// grow makes a fleet with so many voters.
func (f *fleet) grow(voters int) {
	f.t.Helper()
	first := f.add()
	first.start(true)
	f.leader()
	for len(f.nodes) < voters {
		m := f.add()
		m.start(false)
		require.NoError(f.t, m.join(f.invite(first, m), first))
		f.active(first, m)
		_, err := first.registrar.Promote(f.t.Context(), PromoteRequest{Node: m.name}, "the test")
		require.NoError(f.t, err)
	}
}

// other is a running node that does not lead.
func (f *fleet) other() *machine {
	l := f.leader()
	for _, m := range f.nodes {
		if m != l && m.node != nil {
			return m
		}
	}
	require.FailNow(f.t, "no other node runs")
	return nil
}
