// One agent of a fleet.

package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/journal"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// agentNice is the nice value of agents and their jobs.
const agentNice = 10

// agentParty is what the relay calls whoever comes to a daemon's documented port
// for agents. The fleet's own agents have ports of their own there, and their names.
const agentParty = "agents"

// Agent is one runner process. A killed agent can be started again. It carries its name as a label.
type Agent struct {
	Name string

	dir, binary string
	args, env   []string

	mu   sync.Mutex
	proc *Process
}

func (f *Fleet) newAgent(i int) (*Agent, error) {
	name := indexed("agent-", i)
	a := &Agent{Name: name, dir: f.path(name), binary: f.opts.Binary, env: f.opts.Env}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, err
	}
	tls := filepath.Join(a.dir, "tls")
	if err := f.issue(pki.KindAgent, name, tls, name); err != nil {
		return nil, err
	}
	var endpoints []string
	for _, n := range f.nodes {
		front, err := f.relay.ServeAlone(n.Name, n.ownAgents, name)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, front.String())
	}
	a.args = []string{
		"agent", "--endpoints", strings.Join(endpoints, ","), "--dir", filepath.Join(a.dir, "data"), "--slots", strconv.Itoa(f.opts.Slots), "--grace", "1s", "--label", name,
		"--ca", filepath.Join(tls, "ca.crt"), "--cert", filepath.Join(tls, name+".crt"), "--key", filepath.Join(tls, name+".key"),
	}
	return a, nil
}

// Start runs the agent.
func (a *Agent) Start() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proc != nil && a.proc.Running() {
		return fmt.Errorf("%s already runs (pid %d)", a.Name, a.proc.PID())
	}
	p, err := StartProcess(a.Name, a.binary, a.args, a.env, a.dir, a.LogFile())
	if err != nil {
		return err
	}
	a.proc = p
	// Jobs share this machine with the daemons: a build that takes every core
	// must not starve the fleet's timers.
	if err := syscall.Setpriority(syscall.PRIO_PGRP, p.PID(), agentNice); err != nil {
		return fmt.Errorf("%s: lower its priority: %w", a.Name, err)
	}
	return nil
}

func (a *Agent) process() *Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proc
}

// PID is the agent's process id.
func (a *Agent) PID() int { return a.process().PID() }

// Kill ends the agent with SIGKILL.
func (a *Agent) Kill() error { return a.process().Kill() }

// Pause stops the agent with SIGSTOP and returns once the kernel says so.
func (a *Agent) Pause(ctx context.Context) error {
	if err := a.process().Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return a.process().WaitPaused(ctx)
}

// Resume wakes a paused agent.
func (a *Agent) Resume() error { return a.process().Signal(syscall.SIGCONT) }

// LogFile is where the agent's output goes.
func (a *Agent) LogFile() string { return filepath.Join(a.dir, "agent.log") }

func (f *Fleet) startAgents(context.Context) error {
	for i := range f.opts.Agents {
		a, err := f.newAgent(i)
		if err != nil {
			return err
		}
		if err := a.Start(); err != nil {
			return err
		}
		f.mu.Lock()
		f.agents = append(f.agents, a)
		f.mu.Unlock()
	}
	return nil
}

// CutAgent cuts an agent off from all daemons.
func (f *Fleet) CutAgent(name string) { f.eachDoor(name, f.relay.Cut) }

// HealAgent restores all links of an agent.
func (f *Fleet) HealAgent(name string) { f.eachDoor(name, f.relay.Heal) }

func (f *Fleet) eachDoor(agent string, do func(a, b string)) {
	for _, n := range f.Nodes() {
		do(n.Name, agent)
	}
}

// Journal is the agent's own record of everything it started and finished, as
// journal.Read has it: stop or pause the agent, or know that nothing runs.
func (a *Agent) Journal() ([]runner.Entry, error) { return journal.Read(filepath.Join(a.dir, "data")) }
