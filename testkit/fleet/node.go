// One daemon of a fleet: its addresses, its files, its process, and what may be done to it.

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"text/template"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Node is one daemon. A killed daemon can be resumed: it starts again as a new incarnation.
type Node struct {
	Name string
	ID   fsm.NodeID

	dir, binary string
	env         []string
	clusterAddr netip.AddrPort // advertised: the relay's port
	agentAddr   netip.AddrPort
	ownCluster  netip.AddrPort // the daemon's own socket behind the relay
	ownAgents   netip.AddrPort
	http        netip.AddrPort
	space       *namespace // its network; nil: this process's
	proxy       *Proxy     // to PostgreSQL
	door        *Proxy     // to its API, from outside its network
	disk        *disk      // of its data directory; nil: this machine's

	mu     sync.Mutex
	proc   *Process
	paused bool
}

// newNode picks addresses, issues the certificate, opens the relay ports and
// the database proxy, and writes the configuration of the i-th daemon.
func (f *Fleet) newNode(i int) (*Node, error) {
	name := "node-" + string(rune('a'+i))
	n := &Node{Name: name, ID: cluster.NewNodeID(), dir: f.path(name), binary: f.opts.Binary, env: f.opts.Env}
	if f.opts.Trace {
		n.env = append(append([]string(nil), n.env...), "FORGEYARD_TRACE="+n.TraceFile())
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	if err := n.pickAddresses(f.opts.Ports, i); err != nil {
		return nil, err
	}
	if err := f.issue(pki.KindNode, n.ID.String(), filepath.Join(n.dir, "tls"), name); err != nil {
		return nil, err
	}
	if err := n.open(f); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, f.writeConfig(n)
}

// open opens the daemon's ways to and from the others.
func (n *Node) open(f *Fleet) (err error) {
	if f.opts.DataSpace > 0 {
		if n.disk, err = mountDisk(n.DataDir(), f.opts.DataSpace); err != nil {
			return err
		}
	}
	if f.router == nil {
		for _, a := range []netip.AddrPort{n.ownCluster, n.ownAgents} {
			f.relay.Announce(a, n.Name)
		}
		if err := f.relay.Serve(n.clusterAddr, n.Name, n.ownCluster, agentParty); err != nil {
			return err
		}
		if err := f.relay.Serve(n.agentAddr, n.Name, n.ownAgents, agentParty); err != nil {
			return err
		}
		n.proxy, err = listenProxy("tcp", "127.0.0.1:0", "unix", f.socket(), net.Dial, f.opts.LoseReplies)
		return err
	}
	space, address, err := f.router.port()
	if err != nil {
		return err
	}
	n.space = space
	n.ownCluster = netip.AddrPortFrom(address, n.ownCluster.Port())
	n.clusterAddr = n.ownCluster
	f.relay.Enter(n.ownAgents, space.dial)
	if err := f.relay.Serve(n.agentAddr, n.Name, n.ownAgents, agentParty); err != nil {
		return err
	}
	// A socket in the file system is reached from every network.
	if n.proxy, err = listenProxy("unix", filepath.Join(n.dir, socketName), "unix", f.socket(), net.Dial, f.opts.LoseReplies); err != nil {
		return err
	}
	n.door, err = listenProxy("tcp", n.http.String(), "tcp", n.http.String(), space.dial, false)
	return err
}

func (n *Node) pickAddresses(p Ports, i int) (err error) {
	at := func(base int) int {
		if base == 0 {
			return 0
		}
		return base + i*p.Step
	}
	for _, want := range []struct {
		dst  *netip.AddrPort
		pick func(int, int) (netip.AddrPort, error)
		port int
	}{
		{&n.clusterAddr, udpPort, at(p.Cluster)}, {&n.agentAddr, udpPort, at(p.Agents)},
		{&n.ownCluster, udpPort, 0}, {&n.ownAgents, udpPort, 0}, {&n.http, tcpPort, at(p.HTTP)},
	} {
		if *want.dst, err = want.pick(want.port, p.Step); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

var configText = template.Must(template.New("config").Parse(`// Written by the fleet for {{.Name}}.
(
    cluster: (
        mode: Distributed,
        node_id: "{{.Name}}",
        listen: "{{.OwnCluster}}",
        advertise: "{{.Cluster}}",
        seeds: [{{range .Seeds}}"{{.}}", {{end}}],
        tls: (
            ca: File("{{.Dir}}/tls/ca.crt"),
            cert: File("{{.Dir}}/tls/{{.Name}}.crt"),
            key: File("{{.Dir}}/tls/{{.Name}}.key"),
        ),{{with .Timers}}
        timers: {{.}},{{end}}
    ),
    agents: (
        listen: "{{.OwnAgents}}",
        advertise: "{{.Agents}}",
    ),
    http: (
        listen: "{{.HTTP}}",
    ),
    data_dir: "{{.Dir}}/data",
    postgres: (
        owner: "{{.Owner}}",
        app: "{{.App}}",
        direct: "{{.Direct}}",
    ),
    cas: (
        url: "{{.CAS}}",
    ),
)
`))

func (f *Fleet) writeConfig(n *Node) error {
	var seeds []string
	if len(f.nodes) > 0 {
		seeds = append(seeds, f.nodes[0].clusterAddr.String())
	}
	out, err := os.OpenFile(n.configFile(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	return configText.Execute(out, map[string]any{
		"Name": n.Name, "Dir": n.dir, "OwnCluster": n.ownCluster, "Cluster": n.clusterAddr, "OwnAgents": n.ownAgents,
		"Agents": n.agentAddr, "HTTP": n.http, "CAS": f.casURL(), "Seeds": seeds, "Timers": f.opts.Timers,
		"Owner": n.DSN("forgeyard_owner"), "App": n.DSN("forgeyard_app"), "Direct": n.DSN("forgeyard_app"),
	})
}

func (f *Fleet) casURL() string {
	if f.opts.CAS != "" {
		return f.opts.CAS
	}
	return "file://" + f.path("cas")
}

func (n *Node) configFile() string { return filepath.Join(n.dir, "forgeyard.ron") }

// LogFile is where the daemon's output goes.
func (n *Node) LogFile() string { return filepath.Join(n.dir, "daemon.log") }

// TraceFile is where the daemon's trace goes when the fleet traces.
func (n *Node) TraceFile() string { return filepath.Join(n.dir, "trace.jsonl") }

// DataDir is the daemon's data directory.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }

// Endpoint is the base URL of the daemon's API.
func (n *Node) Endpoint() string { return "http://" + n.http.String() }

// Proxy is the daemon's way to PostgreSQL.
func (n *Node) Proxy() *Proxy { return n.proxy }

// start runs the daemon; flags are added to its command line.
func (n *Node) start(flags ...string) error { return n.startBy(nil, flags...) }

// StartBy starts a dead daemon again, by another one than usual.
func (n *Node) StartBy(by Starter) error { return n.startBy(by) }

func (n *Node) startBy(by Starter, flags ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return fmt.Errorf("%s already runs (pid %d)", n.Name, n.proc.PID())
	}
	args := append([]string{"daemon", "--config", n.configFile()}, flags...)
	p, err := startProcess(n.Name, n.binary, args, n.env, n.dir, n.LogFile(), n.space, by)
	if err != nil {
		return err
	}
	n.proc, n.paused = p, false
	return nil
}

func (n *Node) process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// PID is the daemon's process id; 0 when it does not run.
func (n *Node) PID() int {
	if p := n.process(); p != nil && p.Running() {
		return p.PID()
	}
	return 0
}

// State is running, paused or dead.
func (n *Node) State() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.proc == nil || !n.proc.Running():
		return "dead"
	case n.paused:
		return "paused"
	}
	return "running"
}

// Kill ends the daemon with SIGKILL.
func (n *Node) Kill() error {
	p := n.process()
	if p == nil || !p.Running() {
		return fmt.Errorf("%s is already dead; `resume` starts it again", n.Name)
	}
	return p.Kill()
}

// Terminate tells the daemon to stop with SIGTERM, and does not wait.
func (n *Node) Terminate() error {
	p := n.process()
	if p == nil || !p.Running() {
		return fmt.Errorf("%s is already dead", n.Name)
	}
	return p.Signal(syscall.SIGTERM)
}

// Pause stops the daemon with SIGSTOP and returns once the kernel says so.
func (n *Node) Pause(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() {
		return fmt.Errorf("%s is dead", n.Name)
	}
	if err := n.proc.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.paused = true
	return n.proc.WaitPaused(ctx)
}

// Resume wakes a paused daemon or starts a dead one again.
func (n *Node) Resume(context.Context) error {
	switch n.State() {
	case "dead":
		return n.start()
	case "running":
		return fmt.Errorf("%s already runs", n.Name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = false
	return n.proc.Signal(syscall.SIGCONT)
}

// close gives back what the daemon had; it must have ended.
func (n *Node) close() (err error) {
	for _, p := range []*Proxy{n.proxy, n.door} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	if n.disk != nil {
		err = errors.Join(err, n.disk.unmount())
	}
	return err
}

func indexed(prefix string, i int) string { return prefix + strconv.Itoa(i+1) }
