// Package fleet runs a whole Forgeyard fleet as real processes on this machine:
// PostgreSQL, daemons, agents, and the relays that can cut them off. It serves
// `forgeyard dev`, `forgeyard demo` and the process tests.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/postgres"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Options say what fleet to start. Dir and Binary are required.
type Options struct {
	Dir    string   // everything lives below it; made 0700
	Binary string   // the forgeyard executable
	Nodes  int      // daemons; default 3
	Agents int      // default 2
	Slots  int      // jobs an agent runs at a time; default 4
	Ports  Ports    // zero: free ports
	Fsync  bool     // PostgreSQL with fsync; tests and dev do without
	Trace  bool     // daemons write a trace
	Env    []string // further environment of daemons and agents
	Timers string   // raft timers as config text; empty: shipped defaults
	CAS    string   // URL of the artifact store; empty: a directory of the fleet
	// Namespaces gives each daemon a network of its own, where this process is privileged.
	Namespaces bool
	// DataSpace gives each daemon's data directory so many bytes, on a file system in
	// memory; this process must be privileged. 0: no bound.
	DataSpace int64
	// LoseReplies lets the ways to PostgreSQL lose replies, for some CPU.
	LoseReplies bool
	Progress    func(Step)
}

// Step is one line of progress while a fleet starts.
type Step struct {
	Subject string        // "postgres", "node-a", …
	State   string        // "ready", "leader", "voter", …
	Took    time.Duration // since the start of the fleet
	Detail  string        // address or path
}

// Fleet is a running fleet. Its methods are safe for concurrent use.
type Fleet struct {
	opts    Options
	started time.Time

	relay     *Relay
	router    *router // nil: the relay is between the daemons too
	refuser   *refuser
	authority *pki.Authority

	mu      sync.Mutex
	cutting Cutting
	pg      *postgres.Server
	nodes   []*Node
	agents  []*Agent
}

// Start brings up PostgreSQL, the daemons (the first bootstraps, the others
// join and are promoted) and the agents. On error everything already started
// is stopped.
func Start(ctx context.Context, opts Options) (f *Fleet, err error) {
	opts = withDefaults(opts)
	if err := makeFleetDir(opts.Dir); err != nil {
		return nil, err
	}
	f = &Fleet{opts: opts, started: time.Now(), relay: NewRelay(), cutting: Drop}
	defer func() {
		if err != nil {
			stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err = errors.Join(err, f.Stop(stop))
			f = nil
		}
	}()
	if err := f.openRouter(); err != nil {
		return f, err
	}
	for _, step := range []func(context.Context) error{
		f.startPostgres, f.issueCertificates, f.startFirstNode, f.startOtherNodes, f.startAgents, f.waitRoles,
	} {
		if err := step(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

// makeFleetDir makes the directory. PostgreSQL may run as another user below
// it, who must be able to pass through and no more.
func makeFleetDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("fleet directory: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return fmt.Errorf("fleet directory: %w", err)
	}
	return nil
}

func withDefaults(o Options) Options {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Agents == 0 {
		o.Agents = 2
	}
	if o.Slots == 0 {
		o.Slots = 4
	}
	if o.Progress == nil {
		o.Progress = func(Step) {}
	}
	return o
}

func (f *Fleet) progress(subject, state, detail string) {
	f.opts.Progress(Step{Subject: subject, State: state, Took: time.Since(f.started), Detail: detail})
}

// issue writes a certificate of the fleet's authority, and the authority's own, into dir.
func (f *Fleet) issue(kind pki.Kind, id, dir, name string) error {
	issued, err := f.authority.Issue(pki.Subject{Cluster: f.Cluster(), Kind: kind, ID: id}, pki.Validity{})
	if err != nil {
		return fmt.Errorf("certificate of %s: %w", name, err)
	}
	if _, _, err := issued.Write(dir, name); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ca.crt"), f.authority.CertPEM(), 0o600)
}

// Cluster is the fleet's cluster id.
func (f *Fleet) Cluster() fsm.ClusterID { return f.authority.Cluster() }

// Authority is the fleet's certificate authority.
func (f *Fleet) Authority() *pki.Authority { return f.authority }

func (f *Fleet) issueCertificates(context.Context) error {
	authority, err := pki.NewAuthority(f.path("pki"), pki.AuthorityOptions{})
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	f.authority = authority
	for i := range f.opts.Nodes {
		n, err := f.newNode(i)
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, n)
	}
	return nil
}

func (f *Fleet) path(elem ...string) string {
	return filepath.Join(append([]string{f.opts.Dir}, elem...)...)
}

// Dir is where everything of this fleet lives.
func (f *Fleet) Dir() string { return f.opts.Dir }

// Relay is the fleet's UDP relay.
func (f *Fleet) Relay() *Relay { return f.relay }

// Nodes returns the daemons in order of their names.
func (f *Fleet) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Node(nil), f.nodes...)
}

// Agents returns the agents in order of their names.
func (f *Fleet) Agents() []*Agent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Agent(nil), f.agents...)
}

// Node finds a daemon by name.
func (f *Fleet) Node(name string) (*Node, error) {
	var known []string
	for _, n := range f.Nodes() {
		if n.Name == name {
			return n, nil
		}
		known = append(known, n.Name)
	}
	return nil, fmt.Errorf("no daemon %q in this fleet; there are %s", name, strings.Join(known, ", "))
}

// Stop ends agents, daemons, relays and PostgreSQL, in this order, and waits for each.
func (f *Fleet) Stop(ctx context.Context) error {
	var errs []error
	var wg sync.WaitGroup
	var mu sync.Mutex
	stop := func(p *Process) {
		if p == nil {
			return
		}
		wg.Go(func() {
			if err := p.Stop(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	for _, a := range f.Agents() {
		stop(a.process())
	}
	wg.Wait()
	for _, n := range f.Nodes() {
		stop(n.process())
	}
	wg.Wait()
	errs = append(errs, f.relay.Close())
	for _, n := range f.Nodes() {
		errs = append(errs, n.close())
	}
	return errors.Join(append(errs, f.closeRouter(), f.StopPostgres(ctx))...)
}
