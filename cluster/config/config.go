// Package config is the daemon's configuration: what can be set, its defaults,
// where a value came from, and what is refused with a reason (§317–§321).
//
// This file: the settings. A setting's dotted path gives all its names:
// cluster.listen in the file, FORGEYARD_CLUSTER_LISTEN in the environment,
// --cluster-listen as a flag.
package config

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/fsm"
)

// Config is the whole configuration of a daemon.
type Config struct {
	Cluster   Cluster    `ron:"cluster"`
	Agents    Agents     `ron:"agents"`
	HTTP      HTTP       `ron:"http"`
	API       API        `ron:"api"`
	Admin     Admin      `ron:"admin"`
	Postgres  Postgres   `ron:"postgres"`
	CAS       CAS        `ron:"cas"`
	Retention Retention  `ron:"retention"`
	Roles     []fsm.Role `ron:"roles" choices:"SchedulerLeader,ReleaseCoordinator,DeploymentCoordinator,MigrationCoordinator" doc:"coordinated roles that this daemon can run"`
	DataDir   string     `ron:"data_dir" doc:"directory of identity/ and raft/"`
	Log       Log        `ron:"log"`
}

// Cluster is this daemon's part in the fleet.
type Cluster struct {
	Mode   Mode   `ron:"mode" choices:"Standalone,Distributed" doc:"Standalone (one process, no Raft) or Distributed"`
	Name   string `ron:"name" doc:"name of the cluster, used when it is created"`
	NodeID string `ron:"node_id" doc:"label of this node; the real id is minted once and kept in data_dir"`
	Listen string `ron:"listen" doc:"UDP address for other nodes"`
	// Advertise is where other nodes reach this one when that is not Listen.
	Advertise string   `ron:"advertise" doc:"UDP address that other nodes use for this one; listen when empty"`
	Seeds     []string `ron:"seeds" doc:"UDP addresses of other nodes, for discovery only"`
	TLS       TLS      `ron:"tls"`
	Timers    Timers   `ron:"timers"`
	// EarlyElection must be the same on all nodes to be of use: a majority must see that the leader is gone.
	EarlyElection bool `ron:"early_election" doc:"elect at once when a majority sees that the leader's process is gone, instead of waiting for the timers"`
	// Snapshots bound the log between two of them (§181).
	Snapshots Snapshots `ron:"snapshots"`
	Limits    Limits    `ron:"limits"`
}

// TLS refers to this node's certificate; key material itself is refused (§321).
type TLS struct {
	Cert SecretRef `ron:"cert" doc:"certificate: File(\"…\")"`
	Key  SecretRef `ron:"key" doc:"private key: File(\"…\")"`
	CA   SecretRef `ron:"ca" doc:"certificate of the cluster's authority: File(\"…\")"`
}

// Timers are the Raft timers. Multiplier scales all three at once; MaxRTT is the
// slowest round trip between voters that they must leave margin for (§185).
type Timers struct {
	Multiplier float64       `ron:"multiplier" doc:"scales all three timers at once, 0.2 to 20"`
	Heartbeat  time.Duration `ron:"heartbeat" doc:"how long a follower waits for the leader before it suspects it"`
	Election   time.Duration `ron:"election" doc:"how long a candidate waits for votes"`
	Lease      time.Duration `ron:"lease" doc:"how long a leader goes on without hearing from a majority"`
	MaxRTT     time.Duration `ron:"max_rtt" doc:"slowest round trip between voters"`
}

// Scaled returns the three timers with the multiplier applied.
func (t Timers) Scaled() (heartbeat, election, lease time.Duration) {
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * t.Multiplier) }
	return scale(t.Heartbeat), scale(t.Election), scale(t.Lease)
}

// Snapshots say when the Raft log is compacted: at whichever comes first.
type Snapshots struct {
	Entries int  `ron:"entries" doc:"log entries after which a snapshot is taken"`
	Bytes   Size `ron:"bytes" doc:"bytes of log entries after which a snapshot is taken"`
}

// Limits bound what the daemon accepts.
type Limits struct {
	Connections int  `ron:"connections" doc:"QUIC connections of the socket for nodes"`
	Agents      int  `ron:"agents" doc:"QUIC connections of the socket for agents"`
	Body        Size `ron:"body" doc:"largest HTTP request body"`
}

// Agents is where runners connect.
type Agents struct {
	Listen    string `ron:"listen" doc:"UDP address for agents"`
	Advertise string `ron:"advertise" doc:"UDP address that agents use for this daemon; listen when empty"`
}

// HTTP is the API's address. An address that others can reach demands api.tls:
// submitting a run is remote code execution.
type HTTP struct {
	Listen string `ron:"listen" doc:"TCP address of the API; loopback only, unless api.tls is set"`
}

// API is how its callers prove who they are. With neither TLS nor token keys,
// whoever runs on this machine may call it over loopback.
type API struct {
	TLS     bool     `ron:"tls" doc:"serve TLS 1.3 with this node's certificate, and accept admin certificates of this cluster"`
	Tokens  Tokens   `ron:"tokens"`
	Hosts   []string `ron:"hosts" doc:"names by which the API is reached, besides its addresses"`
	Metrics Audience `ron:"metrics" choices:"Permission,Public" doc:"who reads /metrics: Permission (cluster.read) or Public"`
}

// Tokens says whose signatures make a token good. Daemons hold public keys only.
type Tokens struct {
	Keys []string `ron:"keys" doc:"public keys of token signers: files, or directories of *.pub files"`
}

// Admin is the local administration socket, which works without quorum and without PostgreSQL.
type Admin struct {
	Socket string `ron:"socket" doc:"path of the administration socket, at most 100 bytes"`
}

// Postgres holds the three connection strings. Direct defaults to App.
type Postgres struct {
	Owner  DSN `ron:"owner" doc:"connection string of the owner role, for migrations"`
	App    DSN `ron:"app" doc:"connection string of the application role, may go through a pooler"`
	Direct DSN `ron:"direct" doc:"connection string of the application role without a pooler"`
}

// CAS is where bytes are kept: sources, logs, artifacts. All daemons share one; without it jobs run, but
// nothing of their output is kept beyond its tail.
type CAS struct {
	URL   string        `ron:"url" doc:"content store that all daemons share: file:///directory or s3://bucket/dir?endpoint=host:port"`
	Grace time.Duration `ron:"grace" doc:"how long bytes that nothing names are kept, at least 2h"`
	Every time.Duration `ron:"every" doc:"pause between two collections of them"`
}

// Retention is how long rows stay after they are of no use to the fleet any more.
type Retention struct {
	Runs   time.Duration `ron:"runs" doc:"how long a finished run is kept, with its logs and artifacts"`
	Events time.Duration `ron:"events" doc:"how long events can be read again"`
}

// Log says what is logged to standard error, and how.
type Log struct {
	Level  Level  `ron:"level" choices:"Debug,Info,Warn,Error" doc:"Debug, Info, Warn or Error"`
	Format Format `ron:"format" choices:"Text,Json" doc:"Text or Json"`
}

// Default returns the defaults. The TLS references and the admin socket follow
// data_dir and are filled in by Load.
func Default() Config {
	return Config{
		Cluster: Cluster{
			Mode: Standalone, Name: "forgeyard", Listen: "127.0.0.1:7443",
			Timers: Timers{
				Multiplier: 1, Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond,
				Lease: 250 * time.Millisecond, MaxRTT: 20 * time.Millisecond,
			},
			EarlyElection: true,
			Snapshots:     Snapshots{Entries: 1024, Bytes: 2 << 20},
			Limits:        Limits{Connections: 256, Agents: 4096, Body: 1 << 20},
		},
		Agents:    Agents{Listen: "127.0.0.1:7444"},
		HTTP:      HTTP{Listen: "127.0.0.1:7480"},
		API:       API{Metrics: "Permission"},
		Roles:     []fsm.Role{fsm.SchedulerLeader},
		CAS:       CAS{Grace: 24 * time.Hour, Every: 6 * time.Hour},
		Retention: Retention{Runs: 30 * 24 * time.Hour, Events: 3 * 24 * time.Hour},
		DataDir:   "/var/lib/forgeyard",
		Log:       Log{Level: "Info", Format: "Text"},
	}
}

// derive fills the settings whose defaults follow from others.
func (c *Config) derive() {
	identity := filepath.Join(c.DataDir, "identity")
	for ref, name := range map[*SecretRef]string{
		&c.Cluster.TLS.Cert: "node.crt", &c.Cluster.TLS.Key: "node.key", &c.Cluster.TLS.CA: "ca.crt",
	} {
		if ref.IsZero() {
			*ref = SecretRef{Source: FromFile, Name: filepath.Join(identity, name)}
		}
	}
	if c.Cluster.Advertise == "" {
		c.Cluster.Advertise = c.Cluster.Listen
	}
	if c.Agents.Advertise == "" {
		c.Agents.Advertise = c.Agents.Listen
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.DataDir, "admin.sock")
	}
	if c.Postgres.Direct.IsZero() {
		c.Postgres.Direct = c.Postgres.App
	}
}

// Mode is how the daemon coordinates (§325).
type Mode uint8

// Standalone coordinates inside one process, Distributed through Raft.
const (
	Standalone  Mode = 1
	Distributed Mode = 2
)

func (m Mode) String() string {
	switch m {
	case Standalone:
		return "Standalone"
	case Distributed:
		return "Distributed"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText writes the name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name.
func (m *Mode) UnmarshalText(b []byte) error {
	for _, v := range []Mode{Standalone, Distributed} {
		if v.String() == string(b) {
			*m = v
			return nil
		}
	}
	return fmt.Errorf("unknown mode %q", b)
}

// Level is a log level's name: Debug, Info, Warn or Error.
type Level string

// UnmarshalText reads the name.
func (l *Level) UnmarshalText(b []byte) error {
	return oneOf((*string)(l), string(b), "Debug", "Info", "Warn", "Error")
}

// Audience is who may read something: Permission (those who hold one) or Public.
type Audience string

// Everyone is the audience that needs no permission.
const Everyone Audience = "Public"

// UnmarshalText reads the name.
func (a *Audience) UnmarshalText(b []byte) error {
	return oneOf((*string)(a), string(b), "Permission", string(Everyone))
}

// Format is a log format's name: Text or Json.
type Format string

// UnmarshalText reads the name.
func (f *Format) UnmarshalText(b []byte) error {
	return oneOf((*string)(f), string(b), "Text", "Json")
}

func oneOf(dst *string, got string, names ...string) error {
	for _, n := range names {
		if n == got {
			*dst = got
			return nil
		}
	}
	return fmt.Errorf("unknown value %q", got)
}

// Size is a number of bytes, written "64MiB", "512KiB", "1GiB" or "4096".
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}}

func (s Size) String() string {
	for _, u := range sizeUnits[:3] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.bytes, u.suffix)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// UnmarshalRON reads the text form; a bare number is bytes.
func (s *Size) UnmarshalRON(v ron.Value) error {
	n, ok := parseSize(v.Text)
	if !ok || v.Kind != ron.String && v.Kind != ron.Number {
		return v.Errorf("a size is written \"64MiB\", \"512KiB\" or \"4096B\"")
	}
	*s = n
	return nil
}
