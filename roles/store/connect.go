// Connecting: what every session must show before it is used.

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgeyard/forgeyard/migrations"
)

// Bounds of every session. The server ends what a client forgot.
//
// A server that nobody hears is found by dialling. One that accepts, and then is
// slow to begin a session, has too much to do: giving up early would throw away
// what it did, and the next attempt would make it slower still. Whoever waits
// for the session has a deadline of his own, and the session is for the next one.
// Several hosts are in hosts.go.
const (
	connectTimeout   = 3 * time.Second
	beginTimeout     = 10 * time.Second
	statementTimeout = 10 * time.Second
	idleInTxTimeout  = 5 * time.Second
)

var errReadOnlyServer = errors.New("the server is read-only")

// pool prepares a pool of at most size sessions, each admitted once, and keeps
// idle of them open, so that a role which comes to this node does not begin by
// connecting.
func (s *Store) pool(ctx context.Context, kind, dsn string, size, idle int, admit func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, ErrDSN.Wrap(err, "the %s DSN cannot be read", kind)
	}
	cfg.MaxConns, cfg.MinIdleConns = int32(size), int32(idle)
	cfg.MaxConnLifetime, cfg.MaxConnLifetimeJitter = time.Hour, 10*time.Minute
	cfg.MaxConnIdleTime = 10 * time.Minute
	cfg.PingTimeout = connectTimeout
	ownBound := cfg.ConnConfig.ConnectTimeout == 0 // the DSN has none
	if ownBound {
		cfg.ConnConfig.ConnectTimeout = beginTimeout
		cfg.ConnConfig.DialFunc = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	if s.cfg.Dial != nil {
		cfg.ConnConfig.DialFunc = s.cfg.Dial
	}
	settings := map[string]string{
		"application_name":                    strings.Join(strings.Fields("forgeyard "+s.cfg.Name+" "+kind), " "),
		"statement_timeout":                   milliseconds(statementTimeout),
		"idle_in_transaction_session_timeout": milliseconds(idleInTxTimeout),
		// The fence refuses every other level; a database default must not decide it.
		"default_transaction_isolation": "read committed",
		// A prepared statement keeps its plan until the tables are analysed again. Made while they were empty, as at a
		// first start, it would read them whole for each row of a batch when the first thousand jobs come: rather always
		// an index. What has none pays an imagined cost for it, which must not start the compiler.
		"enable_seqscan": "off",
		"jit":            "off",
	}
	if kind == "fenced" { // the server must say that it waited for one lock in vain before the client gives up, which would cost the epoch
		settings["lock_timeout"] = milliseconds(s.cfg.Timeout * 4 / 5)
	}
	for name, value := range settings { // those that the DSN does not have
		if _, ok := cfg.ConnConfig.RuntimeParams[name]; !ok {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	// With several hosts in the DSN this is what finds the writable one; with
	// one it keeps a demoted server's sessions out of the pool.
	cfg.ConnConfig.ValidateConnect = writable
	if ownBound && several(cfg.ConnConfig) {
		(&patience{}).of(cfg)
	}
	cfg.AfterConnect = admit
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s pool: %w", kind, err)
	}
	return p, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func writable(ctx context.Context, c *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, c); err != nil {
		return errors.Join(errReadOnlyServer, err)
	}
	return nil
}

// admit looks at a new session: the right database, of this cluster, by a user
// that cannot switch the fence off, with no transaction pooler between.
func (s *Store) admit(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout) // the pool sets no bound
	defer cancel()
	var pid uint32
	var user, timeout string
	var mighty bool
	var owner *string
	err := c.QueryRow(ctx, `SELECT pg_backend_pid(), current_user, current_setting('idle_in_transaction_session_timeout'),
		pg_has_role(current_user, n.nspowner, 'MEMBER'), (SELECT cluster_id FROM coordination.cluster)
		FROM pg_namespace n WHERE n.nspname = 'coordination'`, pgx.QueryExecModeExec).Scan(&pid, &user, &timeout, &mighty, &owner)
	switch code := state(err); {
	case code == "42P01" || code == "3F000" || errors.Is(err, pgx.ErrNoRows):
		return ErrNotMigrated.Wrap(err, "the database %q has no Forgeyard schema", c.Config().Database)
	case code == "42501":
		return ErrDSN.Wrap(err, "the user %q may not use the database %q", c.Config().User, c.Config().Database)
	case err != nil:
		return err
	case mighty:
		return ErrAppPrivileges.Wrap(nil, "the user %q may change the schema", user)
	case owner == nil:
		return ErrNotMigrated.Wrap(nil, "the database %q was migrated but belongs to no cluster yet", c.Config().Database)
	case *owner != s.cfg.Cluster.String():
		return ErrOtherCluster.Wrap(nil, "the database %q belongs to cluster %s, this node to %s", c.Config().Database, *owner, s.cfg.Cluster)
	case timeout == "0":
		return ErrPooler.Wrap(nil, "the server did not get this node's startup parameters")
	case pid != c.PgConn().PID():
		return s.rejectPooler(ctx, c)
	}
	return nil
}

func (s *Store) admitWarm(ctx context.Context, c *pgx.Conn) error {
	if err := s.admit(ctx, c); err != nil {
		return err
	}
	return s.warm(ctx, c)
}

// rejectPooler decides about a session whose backend id is not the one that the
// connection was given: something stands between. It is a transaction pooler
// when the backend changes between two transactions while another session
// keeps the first one busy; a plain proxy is fine.
func (s *Store) rejectPooler(ctx context.Context, c *pgx.Conn) error {
	cfg := c.Config().Copy()
	other, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	var before, after uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&before); err != nil {
		return err
	}
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	if _, err := tx.Exec(ctx, "SELECT 1", pgx.QueryExecModeExec); err != nil {
		return err
	}
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&after); err != nil {
		return err
	}
	if before != after {
		return ErrPooler.Wrap(nil, "the backend changed from %d to %d between two transactions of one session", before, after)
	}
	return nil
}

// rollback ends a transaction with a context of its own, so that a cancelled request leaks no session.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	// A failed rollback closes the connection, which ends the transaction too.
	_ = tx.Rollback(ctx)
}

// Migrate brings the database to this binary's schema version and claims it for
// this cluster. It refuses another cluster's database before it changes
// anything, and one whose schema is newer than this binary.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.claimed(ctx, false); err != nil {
		return err
	}
	ran, err := migrations.Up(ctx, migrations.Config{Owner: s.cfg.Owner, Direct: s.cfg.Direct, Name: s.cfg.Name})
	if err != nil {
		return explainMigration(err)
	}
	if ran > 0 {
		s.cfg.Logger.Info("database migrated", "migrations", ran)
	}
	if err := s.claimed(ctx, true); err != nil {
		return err
	}
	s.probe.kick()
	return nil
}

// claimed checks whose database this is, over the owner's connection; with
// claim an unclaimed one becomes this cluster's.
func (s *Store) claimed(ctx context.Context, claim bool) error {
	conn, err := pgx.Connect(ctx, s.cfg.Owner)
	if err != nil {
		return explain(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var owner string
	if claim {
		err = conn.QueryRow(ctx, "SELECT coordination.claim($1)", s.cfg.Cluster.String()).Scan(&owner)
	} else {
		err = conn.QueryRow(ctx, "SELECT cluster_id FROM coordination.cluster").Scan(&owner)
		if code := state(err); code == "42P01" || code == "3F000" || errors.Is(err, pgx.ErrNoRows) {
			return nil // nobody's yet
		}
	}
	if err != nil {
		return explain(fmt.Errorf("read whose database this is: %w", err))
	}
	if owner != s.cfg.Cluster.String() {
		return ErrOtherCluster.Wrap(nil, "the database %q belongs to cluster %s, this node to %s", conn.Config().Database, owner, s.cfg.Cluster)
	}
	return nil
}
