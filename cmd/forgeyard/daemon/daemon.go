// A Daemon: what it is made of, the order in which it starts, and the reverse order in which it stops.

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/cluster/reconcile"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/scheduler"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/echo"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Outside is everything that a daemon uses of the world. The daemon owns the
// sockets and listeners from New on and closes them in Stop.
type Outside struct {
	Cluster  net.PacketConn // nil in standalone mode
	Agents   net.PacketConn // nil in standalone mode without a certificate: agents demand one
	API      net.Listener   // TCP, loopback unless api.tls is set; nil serves none
	Admin    net.Listener   // administration socket; nil serves none
	Identity *pki.Identity  // nil in standalone mode without a certificate
	Probe    echo.Dial      // asks other nodes' ports for early election; nil: there is none

	Tracer  trace.Tracer
	Logger  *slog.Logger
	Now     func() time.Time
	Exit    func(code int, reason string)
	Phase   func(part string) // hears which part starts or stops next; nil: nobody does
	Version server.Version

	Postgres  store.Dial                            // reaches PostgreSQL; nil in production
	Disk      Disk                                  // between the Raft engine and its disk; empty in production
	Trailing  uint64                                // log entries that stay behind a snapshot; 0 in production: the engine's own number
	Applied   func(index uint64, hash [32]byte)     // hears the coordination state's hash after every entry; nil but for harnesses
	Watch     func(cluster.Backend) cluster.Backend // between the engine and who uses it; nil in production
	Scheduler scheduler.Config                      // durations; Store, Dispatched and Logger are filled in
	Actors    actors.Config                         // budget, back-off and AllowCrash; the rest is filled in
	Polling   bool                                  // hear other daemons by polling alone: a session that listens would stop virtual time
}

// Disk stands between the Raft engine and its disk, where a harness makes writes slow, fail or hang. Nil fields change nothing.
type Disk struct {
	Log       func(raftnode.Log) raftnode.Log
	Stable    func(raftnode.Stable) raftnode.Stable // term and vote
	Snapshots func(raftnode.Snapshots) raftnode.Snapshots
}

// Start says how a daemon becomes a member when it is none yet.
type Start struct {
	Bootstrap bool             // create the cluster
	Token     membership.Token // join with this token; empty when none
}

// Daemon is one member of the fleet. Start it once, then Stop it once.
type Daemon struct {
	cfg   config.Config
	start Start
	out   Outside
	log   *slog.Logger
	self  cluster.Identity

	store      *store.Store
	bus        *events.Bus                     // wake-ups, from here and from other daemons
	hub        *events.Hub                     // who follows the outbox here
	endpoint   *transport.Endpoint             // between nodes; nil in standalone mode
	agents     *transport.Endpoint             // for agents; nil in standalone mode
	engine     cluster.Backend                 // as it was opened
	backend    cluster.Backend                 // the engine, measured: what everybody uses
	known      atomic.Pointer[cluster.Backend] // backend, for handshakes that may come before it is open
	members    *membership.Registrar           // nil in standalone mode
	admission  *membership.Admission
	directory  *membership.Directory
	service    *cluster.Service
	planner    *actors.Placement
	observer   *health.Observer
	reconciler *reconcile.Reconciler
	scheduler  *scheduler.Scheduler
	sessions   *runner.Sessions
	system     *actors.System
	leaving    atomic.Bool // roles are being given up for good
	checks     *server.Checks
	reached    atomic.Bool // a readiness check has seen PostgreSQL writable
	api        *server.Server
	content    *content // nil without a content store
	figures    figures
	tokenKeys  *token.Keys // whose signatures make a token good; nil when none is accepted

	ctx    context.Context // of background work; ends first in Stop
	cancel context.CancelFunc
	work   sync.WaitGroup
	failed chan error
	undo   []part // what was started, to be stopped in reverse
}

// New makes a daemon. Nothing runs before Start.
func New(cfg config.Config, start Start, out Outside) *Daemon {
	if out.Phase == nil {
		out.Phase = func(string) {}
	}
	d := &Daemon{cfg: cfg, start: start, out: out, log: out.Logger, failed: make(chan error, 4), bus: events.NewBus(), figures: newFigures(out)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Roles is where the roles' trees on this node stand.
func (d *Daemon) Roles() []cluster.RoleStatus { return d.service.Status() }

// Coordination is the coordination engine, for harnesses that propose to it.
func (d *Daemon) Coordination() cluster.Backend { return d.engine }

// Actors is the actor system, for harnesses that crash parts of it.
func (d *Daemon) Actors() *actors.System { return d.system }

// Failed receives the errors that end a running daemon.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Start brings the parts up in order: PostgreSQL is tried first but not waited
// for, because its absence must never stop Raft. On an error the caller still
// calls Stop.
func (d *Daemon) Start(ctx context.Context) error {
	for _, part := range []struct {
		name string
		up   func(context.Context) error
	}{
		{"identity", d.identify},
		{"database", d.openDatabase},
		{"consensus", d.openConsensus},
		{"content store", d.openContent},
		{"roles", d.startRoles},
		{"agents", d.serveAgents},
		{"API", d.serveAPI},
	} {
		d.out.Phase("start of " + part.name)
		if err := part.up(ctx); err != nil {
			return fmt.Errorf("start %s: %w", part.name, err)
		}
	}
	d.log.Info("daemon started", "node", d.self.Node, "name", d.self.Name, "incarnation", d.self.Incarnation, "mode", d.cfg.Cluster.Mode)
	return nil
}

// Stop ends the parts in reverse order, roles first, and returns when no
// goroutine of the daemon is left.
func (d *Daemon) Stop(ctx context.Context) error {
	if d.checks != nil {
		d.checks.Drain()
	}
	var errs []error
	d.out.Phase("end of roles")
	errs = append(errs, d.stopRoles(ctx)) // before the API: an operator can watch it
	d.cancel()
	for _, p := range slices.Backward(d.undo) {
		d.out.Phase("end of " + p.name)
		errs = append(errs, p.down(ctx))
	}
	d.out.Phase("end of background work")
	d.work.Wait()
	return errors.Join(append(errs, d.out.close())...)
}

// part is something that was started.
type part struct {
	name string
	down func(context.Context) error
}

// onStop registers how to end it.
func (d *Daemon) onStop(name string, down func(context.Context) error) {
	d.undo = append(d.undo, part{name, down})
}

// background runs f until Stop; an error ends the daemon.
func (d *Daemon) background(name string, f func(context.Context) error) {
	d.work.Go(func() {
		if err := f(d.ctx); err != nil && d.ctx.Err() == nil {
			d.fail(fmt.Errorf("%s: %w", name, err))
		}
	})
}

func (d *Daemon) fail(err error) {
	select {
	case d.failed <- err:
	default: // the daemon is ending already
	}
}

// close closes what no part has taken over. Closing twice is harmless.
func (o Outside) close() error {
	var errs []error
	for _, c := range []interface{ Close() error }{o.Admin, o.API, o.Cluster, o.Agents} {
		if c == nil {
			continue
		}
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
