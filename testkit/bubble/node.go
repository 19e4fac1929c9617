// Node: one daemon of the fleet, how it starts, ends and is asked.

package bubble

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/daemon"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Node is one daemon of the fleet.
type Node struct {
	fleet   *Fleet
	place   int
	Name    string
	ID      fsm.NodeID
	Trace   *trace.Recorder // of the current incarnation
	cluster netip.AddrPort
	agents  netip.AddrPort
	dir     string
	id      *pki.Identity
	api     atomic.Pointer[pipeListener] // of the current incarnation
	engine  atomic.Pointer[cluster.Backend]
	line    *line // of the current incarnation, or of the last one
	daemon  *daemon.Daemon
	exited  chan string
	ending  chan error        // how the last incarnation ended; nil when that was asked for
	killed  bool              // it was ended by Kill
	traces  []*trace.Recorder // of all incarnations
}

// Start runs the daemon as a new incarnation, once the last one has ended. After
// an error it is not running.
func (n *Node) Start(start daemon.Start) error {
	if err := n.wait(); err != nil {
		return fmt.Errorf("%s: the incarnation before: %w", n.Name, err)
	}
	cfg := config.Default()
	cfg.Cluster.Mode, cfg.Cluster.NodeID, cfg.DataDir = config.Distributed, n.Name, n.dir
	cfg.Cluster.Listen, cfg.Cluster.Advertise = n.cluster.String(), n.cluster.String()
	cfg.Agents.Listen, cfg.Agents.Advertise = n.agents.String(), n.agents.String()
	for _, other := range n.fleet.Nodes {
		if other != n && !start.Bootstrap { // nobody else is there when the first one founds the cluster
			cfg.Cluster.Seeds = append(cfg.Cluster.Seeds, other.cluster.String())
		}
	}
	db := n.fleet.Database
	cfg.Postgres = config.Postgres{Owner: config.InlineDSN(db.Owner), App: config.InlineDSN(db.App), Direct: config.InlineDSN(db.Direct)}
	if n.fleet.opts.Config != nil {
		n.fleet.opts.Config(&cfg)
	}
	n.line = newLine()
	api := newPipeListener(n.line)
	n.api.Store(api)
	n.Trace, n.exited = &trace.Recorder{}, make(chan string, 8)
	n.traces = append(n.traces, n.Trace)
	for _, socket := range n.sockets() {
		n.fleet.Net.Plug(socket)
	}
	out := daemon.Outside{
		Cluster: n.fleet.Net.Listen(n.cluster.String()), Agents: n.fleet.Net.Listen(n.agents.String()), API: api, Identity: n.id,
		Tracer: n.Trace, Logger: slog.New(slog.NewTextHandler(n.fleet.opts.Log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("on", n.Name),
		Now: time.Now, Exit: func(_ int, reason string) { n.exit(reason) },
		Actors: actors.Config{AllowCrash: true}, Polling: true,
		Postgres: n.line.dial,
		Probe:    func(to string) (net.Conn, error) { return n.fleet.Net.DialAs(n.cluster.String(), to), nil },
	}
	if n.fleet.opts.Outside != nil {
		n.fleet.opts.Outside(n, &out)
	}
	n.daemon = daemon.New(cfg, start, out)
	if err := n.daemon.Start(context.Background()); err != nil {
		n.Leave()
		err = errors.Join(err, n.wait())
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	engine := n.daemon.Coordination()
	n.engine.Store(&engine)
	return nil
}

// exit notes that the process would have ended.
func (n *Node) exit(reason string) {
	select {
	case n.exited <- reason:
	default: // it has ended already
	}
}

// Ended tells why the process would have ended by itself; empty while it runs.
func (n *Node) Ended() string {
	if n.daemon == nil {
		return ""
	}
	select {
	case reason := <-n.exited:
		return reason
	case err := <-n.daemon.Failed():
		return err.Error()
	default:
		return ""
	}
}

// Running reports whether the daemon was started and not stopped.
func (n *Node) Running() bool { return n.daemon != nil }

// Stop ends the daemon in order.
func (n *Node) Stop() {
	n.fleet.t.Helper()
	n.Leave()
	require.NoError(n.fleet.t, n.wait(), n.Name)
}

// Leave begins to end the daemon in order. Start and Stop wait until it has ended.
func (n *Node) Leave() {
	d := n.daemon
	if d == nil {
		return
	}
	ended := make(chan error, 1)
	n.daemon, n.ending = nil, ended
	go func() { // ends with ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ended <- d.Stop(ctx)
	}()
}

// Kill ends the daemon without its leave-taking: from now on nobody hears from
// it, neither daemons and agents nor PostgreSQL and clients, so it hands nothing
// over and commits nothing more. What it meets while it ends nobody is told. What
// it has written to its disk stays written, synced or not.
func (n *Node) Kill() {
	if n.daemon == nil {
		return
	}
	for _, socket := range n.sockets() {
		n.fleet.Net.Unplug(socket)
	}
	n.line.cut()
	n.killed = true
	n.Leave()
}

// Gone reports whether nothing is left of the last incarnation.
func (n *Node) Gone() bool { return n.daemon == nil && (n.ending == nil || len(n.ending) > 0) }

// wait returns once nothing is left of the last incarnation.
func (n *Node) wait() error {
	if n.ending == nil {
		return nil
	}
	err := <-n.ending
	killed := n.killed
	n.ending, n.killed = nil, false
	if killed {
		return nil
	}
	return err
}

func (n *Node) sockets() [2]string { return [2]string{n.cluster.String(), n.agents.String()} }

// Address is the daemon's among daemons.
func (n *Node) Address() string { return n.cluster.String() }

// AgentAddress is the daemon's for agents.
func (n *Node) AgentAddress() string { return n.agents.String() }

// Place is the node's number in the fleet; a replacement takes over that of the lost one.
func (n *Node) Place() int { return n.place }

// Roles is where the roles' trees on this daemon stand; nothing while it is down.
func (n *Node) Roles() []cluster.RoleStatus {
	if n.daemon == nil {
		return nil
	}
	return n.daemon.Roles()
}

// Coordination is the coordination engine of the current incarnation, or of the
// last one. It may be used from any goroutine once the node was started.
func (n *Node) Coordination() cluster.Backend { return *n.engine.Load() }

// Actors is the actor system of the running daemon.
func (n *Node) Actors() *actors.System { return n.daemon.Actors() }

// Call sends one request to the daemon's API and decodes the answer.
func (n *Node) Call(method, path string, req, resp any) {
	n.fleet.t.Helper()
	require.NoError(n.fleet.t, n.call(method, path, req, resp))
}

func (n *Node) call(method, path string, req, resp any) error {
	_, err := n.Ask(context.Background(), method, path, nil, req, resp)
	return err
}

// Ask sends one request and decodes the answer. status is 0 when there was none;
// an answer that is no success is an error too. It may be called from any
// goroutine once the node was started.
func (n *Node) Ask(ctx context.Context, method, path string, header http.Header, req, resp any) (status int, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := n.api.Load().client().Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode >= 300 {
		return answer.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if resp == nil {
		return answer.StatusCode, nil
	}
	return answer.StatusCode, json.Unmarshal(text, resp)
}

// Status is the daemon's view of the cluster.
func (n *Node) Status() health.ClusterStatus {
	n.fleet.t.Helper()
	var s health.ClusterStatus
	n.Call(http.MethodGet, "/v1/cluster/status", struct{}{}, &s)
	return s
}

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
