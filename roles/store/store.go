// Package store is the only way to PostgreSQL: pools, fences, and what is known after a failed write.
//
// DESIGN.md in migrations tells why a fenced write has the form it has.
package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgeyard/forgeyard/fsm"
)

// Config says where the database is and how much of it to use.
type Config struct {
	Owner  string // DSN of forgeyard_owner; only Migrate uses it, "" when this node never migrates
	App    string // DSN of forgeyard_app
	Direct string // DSN of forgeyard_app without a pooler between: raising, probing; "" = App

	Cluster fsm.ClusterID // the database must belong to it
	Name    string        // label of this node in pg_stat_activity

	MaxConns    int // connections for unfenced work; 0 = 8
	FencedConns int // connections for fenced writes; 0 = 4: few with large batches beat many

	// Warm are the statements that a role which comes to this node begins with;
	// each session for fenced writes has planned them before it is used.
	Warm []string

	Timeout       time.Duration // bounds the wait for a connection, and what is then done, where the context has no earlier deadline; 0 = 5 s
	ProbeInterval time.Duration // how often writability is probed; 0 = 1 s

	Logger *slog.Logger     // nil = discard
	Now    func() time.Time // nil = time.Now; must carry the monotonic clock

	Dial Dial // reaches the server; nil = a dialler with a bound of its own

	// Observe is told of each fenced operation once, when its outcome is known,
	// before the operation returns: it counts and traces, must not block, and is
	// called concurrently. ctx is the caller's. nil = nobody.
	Observe func(ctx context.Context, op Operation)
}

// Dial opens a connection to a server, as net.Dialer.DialContext does.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// reservedConns serve raising, asserting and probing alone, so that no amount
// of other work can keep a role from its fence: one for each of the four roles
// and one for the probe.
const reservedConns = 5

// leaseConns serve what agents say of their leases alone: nobody's log or reading may
// keep a heartbeat or a result until the lease is over.
const leaseConns = 3

// Store is the database of one cluster as one node sees it. Its methods are
// safe for concurrent use and each returns by its deadline.
type Store struct {
	cfg      Config
	app      *pgxpool.Pool // unfenced work
	fenced   *pgxpool.Pool // fenced batches
	reserved *pgxpool.Pool // raise, assert, probe
	leases   *pgxpool.Pool // agents' leases
	probe    *prober
	close    sync.Once
}

// Open prepares the pools and starts the writability probe. It fails only on a
// malformed configuration: a server that is down is found by the probe, and
// calls fail with ErrUnavailable until it is back.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Cluster.IsZero() {
		return nil, fmt.Errorf("store: no cluster id")
	}
	cfg.Direct = cmp.Or(cfg.Direct, cfg.App)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 8)
	cfg.FencedConns = cmp.Or(cfg.FencedConns, 4)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observe == nil {
		cfg.Observe = func(context.Context, Operation) {}
	}
	s := &Store{cfg: cfg}
	for _, p := range []struct {
		is   **pgxpool.Pool
		kind string
		dsn  string
		size int
		idle int
		take func(context.Context, *pgx.Conn) error
	}{
		{&s.app, "app", cfg.App, cfg.MaxConns, 1, s.admit},
		{&s.fenced, "fenced", cfg.App, cfg.FencedConns, min(2, cfg.FencedConns), s.admitWarm},
		{&s.reserved, "reserved", cfg.Direct, reservedConns, 1, s.admit},
		{&s.leases, "leases", cfg.App, leaseConns, 1, s.admit},
	} {
		var err error
		if *p.is, err = s.pool(ctx, p.kind, p.dsn, p.size, p.idle, p.take); err != nil {
			s.closePools()
			return nil, err
		}
	}
	s.probe = newProber(cfg, s.writeProbe)
	s.probe.start()
	return s, nil
}

// Close ends the probe and the pools. It waits for connections that are in use,
// so cancel what uses them first.
func (s *Store) Close() {
	s.close.Do(func() {
		s.probe.stop()
		s.closePools()
	})
}

func (s *Store) closePools() {
	for _, p := range []*pgxpool.Pool{s.app, s.fenced, s.reserved, s.leases} {
		if p != nil {
			p.Close()
		}
	}
}

// Writable reports whether this node could write at its last probe, and for how
// long that answer has held without a break. An answer older than three probe
// intervals counts as "no".
func (s *Store) Writable() (ok bool, since time.Duration) { return s.probe.state() }
