// Identity and coordination engine: who this process is, and Raft over QUIC or the standalone backend.

package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cluster/local"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

// protocol is what this build speaks.
var protocol = fsm.VersionRange{Min: 1, Max: 1}

// identify binds the data directory to the certificate's node, or in standalone
// mode without a certificate to ids minted once, and takes a new incarnation (§12).
func (d *Daemon) identify(context.Context) error {
	want, mustMatch := config.NodeState{Cluster: cluster.NewClusterID(), Node: cluster.NewNodeID()}, false
	if d.out.Identity != nil {
		subject := d.out.Identity.Subject()
		node, ok := subject.NodeID()
		if !ok {
			return pki.ErrKind
		}
		want, mustMatch = config.NodeState{Cluster: subject.Cluster, Node: node}, true
	}
	bound, err := config.Persist(d.cfg.IdentityDir(), want, mustMatch)
	if err != nil {
		return err
	}
	d.self = cluster.Identity{Cluster: bound.Cluster, Node: bound.Node, Incarnation: cluster.NewIncarnationID(), Name: d.cfg.Cluster.NodeID}
	return nil
}

// use makes the engine known to the parts that were made before it.
func (d *Daemon) use(b cluster.Backend) {
	d.engine, d.backend = b, d.figures.proposals.Wrap(b)
	if d.out.Watch != nil {
		d.backend = d.out.Watch(d.backend)
	}
	d.known.Store(&d.backend)
}

func (d *Daemon) distributed() bool { return d.cfg.Cluster.Mode == config.Distributed }

func (d *Daemon) openConsensus(ctx context.Context) error {
	if d.distributed() {
		return d.openRaft(ctx)
	}
	b, err := local.Open(local.Config{
		Dir: filepath.Join(d.cfg.DataDir, "standalone"), Self: d.self, Name: d.cfg.Cluster.Name, Logger: d.log, Now: d.out.Now,
	})
	if err != nil {
		return err
	}
	d.use(b)
	d.onStop("the coordination engine", func(context.Context) error { return b.Close() })
	return nil
}

// openRaft opens the nodes' endpoint, the Raft engine over it, and membership.
func (d *Daemon) openRaft(ctx context.Context) (err error) {
	d.directory = membership.NewDirectory()
	d.admission = membership.NewAdmission(d.self, d.log, d.out.Now)
	d.onStop("admission", func(context.Context) error { d.admission.Close(); return nil })
	if d.endpoint, err = d.listen(d.out.Cluster, pki.KindNode, d.cfg.Cluster.Limits.Connections, d.admission.Admit); err != nil {
		return err
	}
	d.endpoint.SetResolver(d.directory.Resolve)
	d.onStop("the nodes' endpoint", func(context.Context) error { return d.endpoint.Close() })
	joiner := &membership.Joiner{Control: d.endpoint, Seeds: d.cfg.Cluster.Seeds, Member: d.member(), Logger: d.log}
	if d.start.Bootstrap {
		if err := joiner.CheckNoCluster(ctx); err != nil {
			return err
		}
	}
	node, err := d.openNode()
	if err != nil {
		return err
	}
	d.use(node)
	d.directory.Bind(func() fsm.View { return node.View().View })
	d.members = membership.Start(membership.Config{
		Engine: node, Control: d.endpoint, Tokens: d.store.Tokens(), Audit: d.store.Audit(),
		Protocol: protocol, Logger: d.log, Now: d.out.Now,
	})
	d.onStop("membership", func(context.Context) error { d.members.Close(); return nil })
	d.admission.Bind(node, d.endpoint) // last: until all is served that peers may ask for, they are told to ask again
	if node.Fresh() && !d.start.Bootstrap {
		d.join(joiner, node)
	}
	return nil
}

// openNode starts the Raft engine.
func (d *Daemon) openNode() (*raftnode.Node, error) {
	heartbeat, election, lease := d.cfg.Cluster.Timers.Scaled()
	timers := raftnode.DefaultTimers()
	timers.HeartbeatTimeout, timers.ElectionTimeout, timers.LeaderLeaseTimeout = heartbeat, election, lease
	carrier := rafttransport.New(rafttransport.Config{
		Endpoint: d.endpoint, Self: d.self.Node, HeartbeatTimeout: heartbeat, ElectionTimeout: election, Logger: d.log, Now: d.out.Now,
	})
	node, err := raftnode.Open(raftnode.Config{
		Self: d.self, Member: d.member(), Dir: filepath.Join(d.cfg.DataDir, "raft"), IdentityDir: d.cfg.IdentityDir(),
		Transport: carrier, Control: d.endpoint, Timers: timers, Bootstrap: d.start.Bootstrap, ClusterName: d.cfg.Cluster.Name,
		Snapshots: raftnode.SnapshotPolicy{
			Entries: uint64(d.cfg.Cluster.Snapshots.Entries), Bytes: uint64(d.cfg.Cluster.Snapshots.Bytes), Trailing: d.out.Trailing,
		},
		Logger: d.log, Now: d.out.Now, Exit: d.out.Exit, Applied: d.out.Applied, Early: d.early(),
		WrapLog: d.out.Disk.Log, WrapStable: d.out.Disk.Stable, WrapSnapshots: d.out.Disk.Snapshots,
	})
	if err != nil {
		return nil, errors.Join(err, carrier.Close())
	}
	d.onStop("the coordination engine", func(context.Context) error { return node.Close() })
	return node, nil
}

// early is what early election uses; nil when it is off.
func (d *Daemon) early() *early.Outside {
	if !d.cfg.Cluster.EarlyElection || d.out.Probe == nil {
		return nil
	}
	return &early.Outside{Dial: d.out.Probe, Resolve: d.directory.Resolve}
}

// join redeems the token, if this start has one, and asks for the log until it comes.
func (d *Daemon) join(joiner *membership.Joiner, node *raftnode.Node) {
	d.background("join", func(ctx context.Context) error {
		if d.start.Token != "" {
			v, err := joiner.Join(ctx, d.start.Token)
			if err != nil {
				return err
			}
			d.trust(v)
		}
		return joiner.Settle(ctx, d.trust, func() bool { return node.View().Initialised() })
	})
}

// trust lets the members of a join reply speak to this node before its own log names them.
func (d *Daemon) trust(v fsm.View) {
	d.directory.Learn(v)
	d.admission.Trust(v)
}

// member is what this node says of itself.
func (d *Daemon) member() fsm.Member {
	return fsm.Member{
		Node: d.self.Node, Incarnation: d.self.Incarnation, Name: d.self.Name, Endpoint: fsm.Endpoint(d.cfg.Cluster.Advertise),
		Agents: fsm.Endpoint(d.cfg.Agents.Advertise), Protocol: protocol, Build: d.out.Version.Version,
	}
}
