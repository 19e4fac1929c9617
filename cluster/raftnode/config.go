// What the engine needs of the outside: every part is a constructor argument.

package raftnode

import (
	"context"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode/early"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/rafttransport"
)

// RaftTransport carries the library's messages and knows what was acknowledged;
// rafttransport.Transport is one.
type RaftTransport interface {
	raft.Transport
	// Confirmed is the send time of the newest append that a majority of voters,
	// this node included, acknowledged in the term; zero when none was.
	Confirmed(term uint64, voters []fsm.NodeID) time.Time
	// Peers is the replication progress by follower.
	Peers() []rafttransport.Peer
	// Heard is when the newest append of a node was read here; zero when there was none.
	Heard(fsm.NodeID) time.Time
	// Campaign makes this node stand for election at once; it gives up when ctx ends.
	Campaign(ctx context.Context) error
}

// Control is the control family of the endpoint; transport.Endpoint is one.
type Control interface {
	Call(ctx context.Context, to fsm.NodeID, family transport.Family, method string, req, resp any) error
	Handle(family transport.Family, method string, h transport.Handler)
}

// Config describes one node's engine.
type Config struct {
	Self cluster.Identity
	// Member is what this node says of itself; Role and State are not used.
	Member      fsm.Member
	Dir         string // log, stable store and snapshots; nothing else
	IdentityDir string // identity marker and high-water mark
	Transport   RaftTransport
	Control     Control
	Timers      Timers // zero: DefaultTimers
	// Bootstrap creates the cluster with this node as its only voter; refused over existing state (§60).
	Bootstrap   bool
	ClusterName string        // used by Bootstrap
	StallLimit  time.Duration // one log write or one apply may be under way this long; 0: 10 s
	Snapshots   SnapshotPolicy
	Logger      *slog.Logger // nil: nothing is logged; it must not wait for who reads: it is called on the way to Exit
	Now         func() time.Time
	// Exit ends the process when going on would be unsafe (a hung or damaged log,
	// a hung state machine, a second process under this identity). It may return in tests.
	Exit func(code int, reason string)
	// Early lets this voter campaign before its timers end when its leader's process is gone; nil: never.
	Early *early.Outside
	// WrapLog, WrapStable and WrapSnapshots let a harness stand between engine and disk; nil in production.
	WrapLog       func(Log) Log
	WrapStable    func(Stable) Stable // term and vote
	WrapSnapshots func(Snapshots) Snapshots
	// Applied lets a harness compare replicas: it is told the state's hash after
	// every entry and every restored snapshot, on the library's apply goroutine;
	// nil in production.
	Applied func(index uint64, hash [32]byte)

	// What holds the state machine, or a write of the high-water mark, up in a test; nil otherwise.
	beforeApply, beforeMark func()
}

// The library's stores, named here so that harnesses need not import the library.
type (
	Log       = raft.LogStore
	Stable    = raft.StableStore
	Snapshots = raft.SnapshotStore
)

// Exit codes of Config.Exit, as in sysexits.
const (
	ExitStorage    = 74
	ExitSuperseded = 70
	ExitHung       = 70
)

func (c *Config) setDefaults() error {
	if c.Timers == (Timers{}) {
		c.Timers = DefaultTimers()
	}
	if c.StallLimit == 0 {
		c.StallLimit = defaultStallLimit
	}
	c.Snapshots = c.Snapshots.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.beforeApply == nil {
		c.beforeApply = func() {}
	}
	if c.beforeMark == nil {
		c.beforeMark = func() {}
	}
	if c.Exit == nil {
		c.Exit = func(int, string) {}
	}
	return c.Timers.validate()
}

// library is the configuration of the library under these timers.
func (c *Config) library(notify chan<- bool) *raft.Config {
	lib := raft.DefaultConfig()
	lib.LocalID = serverID(c.Self.Node)
	lib.HeartbeatTimeout = c.Timers.HeartbeatTimeout
	lib.ElectionTimeout = c.Timers.ElectionTimeout
	lib.LeaderLeaseTimeout = c.Timers.LeaderLeaseTimeout
	lib.CommitTimeout = c.Timers.CommitTimeout
	lib.SnapshotThreshold = c.Snapshots.Entries
	lib.SnapshotInterval = snapshotInterval
	lib.TrailingLogs = c.Snapshots.Trailing
	lib.NotifyCh = notify
	lib.Logger = newLogBridge(c.Logger)
	lib.NoLegacyTelemetry = true
	// A removed node keeps serving diagnostics; the transport refuses it, and
	// without a vote it cannot campaign.
	lib.ShutdownOnRemove = false
	return lib
}

func serverID(n fsm.NodeID) raft.ServerID { return raft.ServerID(n.String()) }

func serverAddress(n fsm.NodeID) raft.ServerAddress { return raft.ServerAddress(n.String()) }
