// Agents of the fleet, which execute jobs in process, and strangers who try to join.

package bubble

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Agent is one agent of the fleet.
type Agent struct {
	fleet    *Fleet
	Name     string
	Dir      string // with its journal
	address  string
	identity *pki.Identity
	slots    int
	execute  runner.Executor
	stop     func()
}

// StartAgent runs an agent that executes jobs in process and knows all daemons.
func (f *Fleet) StartAgent(name string, slots int, execute runner.Executor) *Agent {
	f.t.Helper()
	a := &Agent{
		fleet: f, Name: name, Dir: filepath.Join(f.dir, name), address: fmt.Sprintf("10.0.1.%d:7444", len(f.Agents)+1),
		identity: f.identity(pki.KindAgent, name), slots: slots, execute: execute,
	}
	f.Agents = append(f.Agents, a)
	a.Start()
	return a
}

// Start runs the agent as a new process on the same directory.
func (a *Agent) Start() {
	f := a.fleet
	f.t.Helper()
	f.Net.Plug(a.address)
	endpoint, err := transport.Listen(transport.Config{
		Conn: f.Net.Listen(a.address), Identity: a.identity, Now: time.Now,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: f.authority.Cluster(), ID: a.Name, ProtocolMin: 1, ProtocolMax: 1}
		},
	})
	require.NoError(f.t, err)
	cfg := runner.AgentConfig{
		Dialer: runner.QUIC{Endpoint: endpoint}, Dir: a.Dir, Slots: a.slots, Executor: a.execute,
		Resolve: func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
		Logger:  slog.New(slog.NewTextHandler(f.opts.Log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("on", a.Name),
	}
	for _, n := range f.Nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.agents.String())
	}
	running, err := runner.NewAgent(cfg)
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }() // ends with done
	a.stop = func() {
		cancel()
		require.NoError(f.t, <-done)
		require.NoError(f.t, endpoint.Close())
	}
}

// Running reports whether the agent was started and not stopped.
func (a *Agent) Running() bool { return a.stop != nil }

// Stop ends the agent; its running attempts are killed.
func (a *Agent) Stop() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// Kill ends the agent without a word to anybody.
func (a *Agent) Kill() {
	a.fleet.Net.Unplug(a.address)
	a.Stop()
}

// Address is the agent's socket.
func (a *Agent) Address() string { return a.address }

// Stranger is a process with a certificate of a node that is no member.
type Stranger struct {
	fleet    *Fleet
	ID       fsm.NodeID
	address  string
	seeds    []string
	identity *pki.Identity
}

// NewStranger makes a process with a new certificate for a node's id, at a
// number among strangers' addresses that no other one uses at that time.
func (f *Fleet) NewStranger(id fsm.NodeID, number int) *Stranger {
	f.t.Helper()
	return f.stranger(id, fmt.Sprintf("10.0.2.%d:7443", number), f.identity(pki.KindNode, id.String()))
}

func (f *Fleet) stranger(id fsm.NodeID, address string, identity *pki.Identity) *Stranger {
	s := &Stranger{fleet: f, ID: id, address: address, identity: identity}
	for _, n := range f.Nodes {
		s.seeds = append(s.seeds, n.cluster.String())
	}
	return s
}

// Redeem tries to join with a token through all daemons, until it is admitted,
// finally refused, or ctx ends. It runs no daemon afterwards. It may be called
// from any goroutine.
func (s *Stranger) Redeem(ctx context.Context, token membership.Token) error {
	f, incarnation := s.fleet, cluster.NewIncarnationID()
	endpoint, err := transport.Listen(transport.Config{
		Conn: f.Net.Listen(s.address), Identity: s.identity, Now: time.Now,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: f.authority.Cluster(), ID: s.ID.String(), Incarnation: incarnation, ProtocolMin: 1, ProtocolMax: 1}
		},
	})
	if err != nil {
		return err
	}
	joiner := membership.Joiner{Control: endpoint, Seeds: s.seeds, Member: fsm.Member{
		Node: s.ID, Incarnation: incarnation, Name: "stranger-" + s.ID.String(), Endpoint: fsm.Endpoint(s.address), Agents: fsm.Endpoint(s.address),
		Protocol: fsm.VersionRange{Min: 1, Max: 1},
	}}
	_, err = joiner.Join(ctx, token)
	if closed := endpoint.Close(); err == nil {
		err = closed
	}
	return err
}
