// Package bubble runs a fleet of real daemons inside a testing/synctest bubble:
// real Raft over real QUIC on an in-memory network with faults, real PostgreSQL
// on a unix socket, virtual time.
//
// What freezes the bubble's clock stays outside: jobs run in process, the API
// listens in memory, PostgreSQL outages belong to the process fleet.
package bubble

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/netsim"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// born is before the year in which a bubble's clock starts.
var born = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// Fleet is a fleet in a bubble. Use it from one goroutine.
type Fleet struct {
	t         testing.TB
	Net       *netsim.Network
	Database  *pgtest.Database
	authority *pki.Authority
	dir       string // made before Stop is registered, so that it outlives the daemons
	Nodes     []*Node
	stop      []func()
}

// Node is one daemon of the fleet.
type Node struct {
	fleet   *Fleet
	Name    string
	ID      fsm.NodeID
	Trace   *trace.Recorder // of the current incarnation
	cluster netip.AddrPort
	agents  netip.AddrPort
	dir     string
	id      *pki.Identity
	api     *pipeListener
	daemon  *daemon.Daemon
	exited  chan string
	traces  []*trace.Recorder // of all incarnations
}

// New starts a fleet of size daemons: the first bootstraps, the others join and
// are promoted. Call it inside the bubble, with a database made outside of it.
func New(t testing.TB, db *pgtest.Database, size int, seed uint64) *Fleet {
	t.Helper()
	authority, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: pki.Validity{NotBefore: born}})
	require.NoError(t, err)
	f := &Fleet{t: t, Net: netsim.New(seed), Database: db, authority: authority, dir: workDir(t)}
	f.Net.Delay(time.Millisecond, 3*time.Millisecond)
	t.Cleanup(f.Stop)
	for i := range size {
		f.Nodes = append(f.Nodes, f.newNode(i))
	}
	first := f.Nodes[0]
	first.Start(daemon.Start{Bootstrap: true})
	first.Await("leads", func(s health.ClusterStatus) bool {
		return s.Leader.Node == first.ID && s.Leader.Epoch.Epoch > 0
	})
	for _, n := range f.Nodes[1:] {
		f.join(n)
	}
	return f
}

// workDir is in memory where there is such a file system: a fleet syncs its logs
// thousands of times, which costs real time and no virtual.
func workDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "fybubble")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (f *Fleet) newNode(i int) *Node {
	n := &Node{
		fleet: f, Name: "node-" + string(rune('a'+i)), ID: cluster.NewNodeID(),
		cluster: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7443),
		agents:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7444),
	}
	n.dir = filepath.Join(f.dir, n.Name)
	n.id = f.identity(pki.KindNode, n.ID.String())
	return n
}

func (f *Fleet) identity(kind pki.Kind, id string) *pki.Identity {
	issued, err := f.authority.Issue(pki.Subject{Kind: kind, ID: id}, pki.Validity{NotBefore: born})
	require.NoError(f.t, err)
	identity, err := issued.Identity(f.authority)
	require.NoError(f.t, err)
	return identity
}

func (f *Fleet) join(n *Node) {
	f.t.Helper()
	var added membership.Added
	first := f.Nodes[0]
	first.Call(http.MethodPost, "/v1/cluster/add", membership.AddRequest{Node: n.ID, Name: n.Name}, &added)
	n.Start(daemon.Start{Token: membership.Token(added.Token)})
	first.Await(n.Name+" is active", func(s health.ClusterStatus) bool {
		for _, m := range s.Members {
			if m.Node == n.ID {
				return m.State == fsm.Active
			}
		}
		return false
	})
	first.Call(http.MethodPost, "/v1/cluster/promote", membership.PromoteRequest{Node: n.Name}, nil)
}

// Start runs the daemon as a new incarnation.
func (n *Node) Start(start daemon.Start) {
	n.fleet.t.Helper()
	cfg := config.Default()
	cfg.Cluster.Mode, cfg.Cluster.NodeID, cfg.DataDir = config.Distributed, n.Name, n.dir
	cfg.Cluster.Listen, cfg.Cluster.Advertise = n.cluster.String(), n.cluster.String()
	cfg.Agents.Listen, cfg.Agents.Advertise = n.agents.String(), n.agents.String()
	cfg.Cluster.Seeds = []string{n.fleet.Nodes[0].cluster.String()}
	db := n.fleet.Database
	cfg.Postgres = config.Postgres{Owner: config.InlineDSN(db.Owner), App: config.InlineDSN(db.App), Direct: config.InlineDSN(db.Direct)}
	n.Trace, n.api, n.exited = &trace.Recorder{}, newPipeListener(), make(chan string, 8)
	n.traces = append(n.traces, n.Trace)
	n.daemon = daemon.New(cfg, start, daemon.Outside{
		Cluster: n.fleet.Net.Listen(n.cluster.String()), Agents: n.fleet.Net.Listen(n.agents.String()), API: n.api, Identity: n.id,
		Tracer: n.Trace, Logger: slog.New(slog.NewTextHandler(n.fleet.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("on", n.Name),
		Now: time.Now, Exit: func(_ int, reason string) { n.exited <- reason },
		Actors: actors.Config{AllowCrash: true}, Polling: true,
	})
	require.NoError(n.fleet.t, n.daemon.Start(context.Background()), n.Name)
}

// Stop ends the daemon in order.
func (n *Node) Stop() {
	n.fleet.t.Helper()
	if n.daemon == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(n.fleet.t, n.daemon.Stop(ctx), n.Name)
	n.daemon = nil
}

// Isolate cuts the daemon off from all other daemons; agents and PostgreSQL still reach it.
func (f *Fleet) Isolate(n *Node) { f.Net.Isolate(n.cluster.String()) }

// Cut cuts two daemons off from each other.
func (f *Fleet) Cut(a, b *Node) { f.Net.Cut(a.cluster.String(), b.cluster.String()) }

// Starve delays everything that the daemon hears and says.
func (f *Fleet) Starve(n *Node, by time.Duration) { f.Net.Lag(n.cluster.String(), by) }

// Heal restores every link.
func (f *Fleet) Heal() { f.Net.HealAll() }

// Stop ends agents and daemons; the fleet's test does it by itself at its end.
func (f *Fleet) Stop() {
	f.t.Helper()
	for _, stop := range f.stop {
		stop()
	}
	f.stop = nil
	for _, n := range f.Nodes {
		n.Stop()
	}
	f.requireOrder()
}

// Call sends one request to the daemon's API and decodes the answer.
func (n *Node) Call(method, path string, req, resp any) {
	n.fleet.t.Helper()
	require.NoError(n.fleet.t, n.call(method, path, req, resp))
}

func (n *Node) call(method, path string, req, resp any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := n.api.client().Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if resp == nil {
		return nil
	}
	return json.Unmarshal(text, resp)
}

// Status is the daemon's view of the cluster.
func (n *Node) Status() health.ClusterStatus {
	n.fleet.t.Helper()
	var s health.ClusterStatus
	n.Call(http.MethodGet, "/v1/cluster/status", struct{}{}, &s)
	return s
}

// patience is the virtual time after which waiting fails.
const patience = 2 * time.Minute

// Await polls the daemon's status in virtual time until ok.
func (n *Node) Await(what string, ok func(health.ClusterStatus) bool) health.ClusterStatus {
	n.fleet.t.Helper()
	var s health.ClusterStatus
	n.fleet.Await(n.Name+": "+what, func() bool {
		s = n.Status()
		return ok(s)
	})
	return s
}

// Await polls in virtual time until ok, and fails the test after two virtual minutes.
func (f *Fleet) Await(what string, ok func() bool) {
	f.t.Helper()
	for begun := time.Now(); !ok(); <-time.After(50 * time.Millisecond) {
		if time.Since(begun) > patience {
			require.FailNow(f.t, "it did not happen", what)
		}
	}
}

// ActiveAbove returns the node on which a role is active under an epoch above one.
func (f *Fleet) ActiveAbove(role fsm.Role, above fsm.Epoch, among ...*Node) (owner *Node, epoch fsm.Epoch) {
	f.t.Helper()
	f.Await(fmt.Sprintf("%s active above epoch %d", role, above), func() bool {
		for _, n := range among {
			for _, row := range n.daemon.Roles() {
				if row.Role == role && row.State == cluster.GuardActive && row.Epoch > above {
					owner, epoch = n, row.Epoch
					return true
				}
			}
		}
		return false
	})
	return owner, epoch
}

// StartAgent runs an agent that executes jobs in process and knows all daemons.
func (f *Fleet) StartAgent(name string, slots int, execute runner.Executor) {
	f.t.Helper()
	endpoint, err := transport.Listen(transport.Config{
		Conn: f.Net.Listen(fmt.Sprintf("10.0.1.%d:7444", len(f.stop)+1)), Identity: f.identity(pki.KindAgent, name), Now: time.Now,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: f.authority.Cluster(), ID: name, ProtocolMin: 1, ProtocolMax: 1}
		},
	})
	require.NoError(f.t, err)
	cfg := runner.AgentConfig{
		Dialer: runner.QUIC{Endpoint: endpoint}, Dir: filepath.Join(f.dir, name), Slots: slots, Executor: execute,
		Resolve: func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
	}
	for _, n := range f.Nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.agents.String())
	}
	a, err := runner.NewAgent(cfg)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	f.stop = append(f.stop, func() {
		cancel()
		require.NoError(f.t, <-done)
		require.NoError(f.t, endpoint.Close())
	})
}
