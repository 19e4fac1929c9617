// A fleet of engines in one process, over an in-memory Raft transport and an in-memory control family.

package raftnode

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

func TestMain(m *testing.M) {
	if disk.Supervised() {
		os.Exit(driveMain())
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for a fact; it is far above what any of them takes.
const patience = 15 * time.Second

var fast = Timers{HeartbeatTimeout: 150 * time.Millisecond, ElectionTimeout: 150 * time.Millisecond, LeaderLeaseTimeout: 100 * time.Millisecond, CommitTimeout: 10 * time.Millisecond}

type acknowledged struct {
	term uint64
	at   time.Time
}

func newMemRaft(self fsm.NodeID) *memRaft {
	_, t := raft.NewInmemTransportWithTimeout(serverAddress(self), 200*time.Millisecond)
	t.Connect(serverAddress(self), t) // for Campaign
	return &memRaft{InmemTransport: t, self: self, ack: map[fsm.NodeID]rafttransport.Peer{}, sent: map[fsm.NodeID]acknowledged{}}
}

// switchboard is the control family between the nodes of one process.
type switchboard struct {
	mu    sync.Mutex
	lines map[fsm.NodeID]*line
	cut   map[[2]fsm.NodeID]bool
}

type handler = transport.Handler

type line struct {
	board    *switchboard
	self     fsm.NodeID
	peer     transport.Peer // how others see this node
	mu       sync.Mutex
	handlers map[string]handler
}

func (l *line) Handle(_ transport.Family, method string, h handler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handlers[method] = h
}

var errLineCut = errors.New("the line is cut")

func (l *line) Call(ctx context.Context, to fsm.NodeID, _ transport.Family, method string, req, resp any) error {
	l.board.mu.Lock()
	other, cut := l.board.lines[to], l.board.cut[[2]fsm.NodeID{l.self, to}]
	l.board.mu.Unlock()
	if other == nil || cut {
		return errLineCut
	}
	other.mu.Lock()
	h := other.handlers[method]
	other.mu.Unlock()
	if h == nil {
		return errLineCut
	}
	body, err := cbor.Marshal(req)
	if err != nil {
		return err
	}
	out, err := h(ctx, l.peer, body)
	if err != nil {
		return err
	}
	back, err := cbor.Marshal(out)
	if err != nil {
		return err
	}
	return cbor.Unmarshal(back, resp)
}

// fleet is the nodes of one cluster.
type fleet struct {
	t       *testing.T
	dir     string
	cluster fsm.ClusterID
	board   *switchboard
	logs    slog.Handler
	nodes   []*member
}

// member is one node across its restarts.
type member struct {
	f     *fleet
	id    fsm.NodeID
	dir   string
	node  *Node
	raft  *memRaft
	cfg   Config
	exits chan string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	var out io.Writer = io.Discard
	if os.Getenv("FORGEYARD_TEST_LOG") != "" {
		out = os.Stderr
	}
	f := &fleet{
		t: t, dir: t.TempDir(), cluster: cluster.NewClusterID(), logs: slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}),
		board: &switchboard{lines: map[fsm.NodeID]*line{}, cut: map[[2]fsm.NodeID]bool{}},
	}
	t.Cleanup(func() {
		for _, m := range f.nodes {
			m.close()
		}
	})
	return f
}

func (f *fleet) add() *member {
	id := cluster.NewNodeID()
	m := &member{f: f, id: id, dir: filepath.Join(f.dir, id.String()), exits: make(chan string, 4)}
	f.nodes = append(f.nodes, m)
	return m
}

// config is the configuration of the next start: a new incarnation.
func (m *member) config() Config {
	self := cluster.Identity{Cluster: m.f.cluster, Node: m.id, Incarnation: cluster.NewIncarnationID()}
	m.raft = newMemRaft(m.id)
	l := &line{board: m.f.board, self: m.id, handlers: map[string]handler{}, peer: transport.Peer{
		Subject: pki.Node(m.f.cluster, m.id), Hello: transport.Hello{Cluster: m.f.cluster, ID: m.id.String(), Incarnation: self.Incarnation},
	}}
	m.f.board.mu.Lock()
	m.f.board.lines[m.id] = l
	m.f.board.mu.Unlock()
	return Config{
		Self: self, Dir: filepath.Join(m.dir, "raft"), IdentityDir: filepath.Join(m.dir, "identity"),
		Member:    m.describe(self.Incarnation),
		Transport: m.raft, Control: l, Timers: fast, ClusterName: "test",
		Logger: slog.New(m.f.logs).With("node", m.id.String()[20:]),
		Exit:   func(_ int, reason string) { m.exits <- reason },
	}
}

func (m *member) describe(inc fsm.IncarnationID) fsm.Member {
	return fsm.Member{
		Node: m.id, Incarnation: inc, Name: "node", Role: fsm.Learner, State: fsm.Joining, Endpoint: "127.0.0.1:7443",
		Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "test",
	}
}

// start opens the node and wires it to those that run.
func (m *member) start(change ...func(*Config)) *Node {
	m.f.t.Helper()
	m.cfg = m.config()
	for _, c := range change {
		c(&m.cfg)
	}
	m.connect(true)
	n, err := Open(m.cfg)
	require.NoError(m.f.t, err)
	m.node = n
	return n
}

func (m *member) connect(on bool) {
	for _, o := range m.f.nodes {
		if o == m || o.raft == nil {
			continue
		}
		m.link(o, on)
	}
}

// link joins or cuts both directions between two nodes, for both families.
func (m *member) link(o *member, on bool) {
	if on {
		m.raft.Connect(serverAddress(o.id), o.raft.InmemTransport)
		o.raft.Connect(serverAddress(m.id), m.raft.InmemTransport)
	} else {
		m.raft.Disconnect(serverAddress(o.id))
		o.raft.Disconnect(serverAddress(m.id))
	}
	m.f.board.mu.Lock()
	defer m.f.board.mu.Unlock()
	m.f.board.cut[[2]fsm.NodeID{m.id, o.id}] = !on
	m.f.board.cut[[2]fsm.NodeID{o.id, m.id}] = !on
}

func (m *member) close() {
	if m.node == nil {
		return
	}
	m.connect(false)
	require.NoError(m.f.t, m.node.Close())
	m.node, m.raft = nil, nil
}

func bootstrap(c *Config) { c.Bootstrap = true }

// alone quickens the election of a node that needs nobody's vote.
func alone(c *Config) {
	c.Timers = Timers{HeartbeatTimeout: minTimer, ElectionTimeout: minTimer, LeaderLeaseTimeout: minTimer, CommitTimeout: 5 * time.Millisecond}
}

// bubble runs a test in virtual time with a fleet of so many voters.
func bubble(t *testing.T, voters int, run func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		if voters > 0 {
			f.grow(voters)
		}
		run(t, f)
	})
}

// grow brings the fleet to the number of voters, bootstrapping a first node if there is none.
func (f *fleet) grow(voters int) {
	f.t.Helper()
	if len(f.nodes) == 0 {
		f.add().start(bootstrap)
	}
	leader := f.leader()
	for len(f.nodes) < voters {
		m := f.add()
		m.start()
		f.admit(leader, m)
		f.promote(leader, m)
	}
}

// admit makes a running node an Active learner that receives the log.
func (f *fleet) admit(leader, m *member) {
	f.t.Helper()
	f.propose(leader.node, fsm.AddLearner{ExpectedConfig: leader.node.View().Config, Member: m.describe(m.cfg.Self.Incarnation)})
	f.eventually(func() bool { return leader.node.AddNonvoter(f.t.Context(), m.id) == nil })
	f.propose(leader.node, fsm.UpdateMember{Node: m.id, ExpectedIncarnation: m.cfg.Self.Incarnation, State: fsm.Active})
	f.eventually(func() bool {
		x, ok := m.node.View().Member(m.id)
		return ok && x.State == fsm.Active
	})
}

func (f *fleet) promote(leader, m *member) {
	f.t.Helper()
	f.propose(leader.node, fsm.PromoteVoter{ExpectedConfig: leader.node.View().Config, Node: m.id})
	f.eventually(func() bool { return leader.node.AddVoter(f.t.Context(), m.id) == nil })
}

func (f *fleet) propose(n *Node, c fsm.Command) cluster.Commit {
	f.t.Helper()
	commit, err := n.Propose(f.t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(f.t, err)
	return commit
}

func (f *fleet) eventually(ok func() bool) {
	f.t.Helper()
	require.Eventually(f.t, ok, patience, 2*time.Millisecond)
}

// leader waits until exactly one running node leads and returns it.
func (f *fleet) leader(among ...*member) *member {
	f.t.Helper()
	if among == nil {
		among = f.nodes
	}
	var found *member
	f.eventually(func() bool {
		found = nil
		for _, m := range among {
			if m.node == nil {
				continue
			}
			if _, leads := m.node.Leadership(); leads {
				if found != nil {
					return false
				}
				found = m
			}
		}
		return found != nil
	})
	return found
}

// others are the running nodes but one.
func (f *fleet) others(m *member) []*member {
	return slices.DeleteFunc(slices.Clone(f.nodes), func(o *member) bool { return o == m || o.node == nil })
}
