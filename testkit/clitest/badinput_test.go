// Bad input: every start that must be refused, with its code, its exit status and the files it must leave alone.

package clitest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// badStart is one way to start a daemon wrongly, over a copy of the data of a
// node that has run before.
type badStart struct {
	name  string
	spoil func(t *testing.T, s *site) (flags []string)
	code  string
	exit  int
}

var badStarts = []badStart{
	{"unknown configuration field", extra(`node_idd: "node-a",`), "FY-CONFIG-002", 2},
	{"API that other machines reach", func(_ *testing.T, s *site) []string {
		s.HTTP = "0.0.0.0:0"
		return nil
	}, "FY-CONFIG-004", 2},
	{"timers that cannot work", extra(`timers: (heartbeat: "1s", election: "500ms"),`), "FY-CONFIG-003", 2},
	{"missing configuration file", func(*testing.T, *site) []string { return []string{"--config", "/nonexistent/forgeyard.ron"} }, "FY-CONFIG-001", 2},
	{"occupied cluster port", occupied("udp", func(s *site) string { return s.Cluster }), "FY-PORT-001", 1},
	{"occupied agents' port", occupied("udp", func(s *site) string { return s.Agents }), "FY-PORT-001", 1},
	{"occupied API port", occupied("tcp", func(s *site) string { return s.HTTP }), "FY-PORT-001", 1},

	{"missing certificate", func(t *testing.T, s *site) []string {
		require.NoError(t, os.Remove(s.Key))
		return nil
	}, "FY-CERT-010", 1},
	{"agent's certificate", certified(func(t *testing.T, s *site) {
		s.Cert, s.Key = s.issue(t, s.ca, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}, "agent", pki.Validity{})
	}), "FY-CERT-006", 1},
	{"administrator's certificate", certified(func(t *testing.T, s *site) {
		s.Cert, s.Key = s.issue(t, s.ca, pki.Subject{Kind: pki.KindAdmin, ID: "root"}, "admin", pki.Validity{})
	}), "FY-CERT-006", 1},
	{"expired certificate", certified(func(t *testing.T, s *site) {
		v := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
		s.Cert, s.Key = s.issue(t, s.ca, pki.Node(s.ca.Cluster(), s.id), "old", v)
	}), "FY-CERT-004", 1},
	{"certificate of another authority", certified(func(t *testing.T, s *site) {
		forger, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: s.ca.Cluster()})
		require.NoError(t, err)
		s.Cert, s.Key = s.issue(t, forger, pki.Node(s.ca.Cluster(), s.id), "forged", pki.Validity{})
	}), "FY-CERT-002", 1},
	{"certificate of another cluster", certified(func(t *testing.T, s *site) {
		other, err := pki.NewAuthority("", pki.AuthorityOptions{})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(s.CA, other.CertPEM(), 0o600))
		s.Cert, s.Key = s.issue(t, other, pki.Node(other.Cluster(), s.id), "other", pki.Validity{})
	}), "FY-CONFIG-006", 2},
	{"certificate of another node", certified(func(t *testing.T, s *site) {
		s.Cert, s.Key = s.issue(t, s.ca, pki.Node(s.ca.Cluster(), cluster.NewNodeID()), "twin", pki.Validity{})
	}), "FY-CONFIG-006", 2},

	{"emptied log store under a marker", func(t *testing.T, s *site) []string {
		require.NoError(t, os.RemoveAll(filepath.Join(s.Data, "raft")))
		require.NoError(t, os.Mkdir(filepath.Join(s.Data, "raft"), 0o700))
		return nil
	}, "FY-STORE-002", 1},
	{"truncated log store", bolt(func(b []byte) []byte { return b[:len(b)/2+100] }), "FY-STORE-003", 1},
	{"garbage in the log store", bolt(func([]byte) []byte { return []byte(strings.Repeat("garbage ", 8192)) }), "FY-STORE-003", 1},
	{"zeroed page in the log store", bolt(func(b []byte) []byte { clear(b[:4096]); return b }), "FY-STORE-003", 1},
	{"marker gone", func(t *testing.T, s *site) []string {
		require.NoError(t, os.Remove(filepath.Join(s.Data, "identity", "raft-marker.json")))
		return nil
	}, "FY-STORE-006", 1},
	{"bootstrap of a member", func(*testing.T, *site) []string { return []string{"--bootstrap"} }, "FY-BOOT-001", 5},
	{"text that is no join token", func(t *testing.T, s *site) []string {
		file := filepath.Join(s.dir, "token")
		require.NoError(t, os.WriteFile(file, []byte("letmein\n"), 0o600))
		return []string{"--join-token-file", file}
	}, "FY-JOIN-001", 7},

	{"database of another cluster", database(`SELECT coordination.claim('01HZZZZZZZZZZZZZZZZZZZZZZZ')`), "FY-DB-003", 1},
	{"database with a newer schema", database(`INSERT INTO coordination.schema_version (version_id, is_applied) VALUES (99999, true)`), "FY-DB-004", 1},
}

// extra adds text to the cluster's part of the configuration.
func extra(text string) func(*testing.T, *site) []string {
	return func(_ *testing.T, s *site) []string {
		s.ClusterExtra = text
		return nil
	}
}

func certified(change func(*testing.T, *site)) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		change(t, s)
		return nil
	}
}

// occupied takes an address of the site away.
func occupied(network string, addr func(*site) string) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		if network == "tcp" {
			l, err := net.Listen(network, addr(s))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			return nil
		}
		c, err := net.ListenPacket(network, addr(s))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return nil
	}
}

// bolt spoils the log store's file.
func bolt(change func([]byte) []byte) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		path := filepath.Join(s.Data, "raft", "raft.db")
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(b), 8192, "the log store holds something to spoil")
		require.NoError(t, os.WriteFile(path, change(b), 0o600))
		return nil
	}
}

// database gives the site a database that one statement has spoiled.
func database(sql string) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		db := pgtest.New(t)
		execute(t, db, sql)
		s.use(db)
		return nil
	}
}

func execute(t *testing.T, db *pgtest.Database, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandBound)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.Super)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	tag, err := conn.Exec(ctx, sql, args...)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), sql)
}

// seasoned is a node that has founded a cluster, run, and stopped.
func seasoned(t *testing.T) *site {
	t.Helper()
	s := newSite(t, product(t))
	s.start(t, "--bootstrap").leads().stop()
	require.NotContains(t, tree(t, s.Data), "admin.sock", "a daemon that stopped leaves no socket")
	return s
}

func TestBadStartsAreRefusedAndChangeNothing(t *testing.T) {
	veteran := seasoned(t)
	for _, c := range badStarts {
		t.Run(c.name, func(t *testing.T) {
			s := veteran.branch(t)
			flags := c.spoil(t, s)
			before := tree(t, s.Data)
			o := s.daemon(t, flags...)
			code, message := o.fault(t)
			require.Equal(t, c.code, code, o.stderr)
			require.Equal(t, c.exit, o.code, o.stderr)
			require.NotEmpty(t, message)
			require.Equal(t, before, tree(t, s.Data), "the data directory has changed")
			require.Empty(t, processes(t, s.dir))
		})
	}
	t.Run("the copies themselves are good", func(t *testing.T) { veteran.branch(t).start(t).leads() })
}

// The commands that run processes are as strict about their arguments as the others.
func TestWrongArgumentsOfProcesses(t *testing.T) {
	exe := product(t)
	for _, args := range []string{"daemon extra", "daemon --bogus", "agent extra", "dev bogus", "dev kill", "dev kill a b", "dev --port x", "demo extra"} {
		o := command(t, exe, environment(), strings.Fields(args)...)
		require.Equal(t, 2, o.code, "%s: %s", args, o.stderr)
		require.True(t, strings.HasPrefix(o.stderr, "error: "), o.stderr)
		require.Empty(t, o.stdout)
	}
}

// An agent starts with an agent's certificate only, and leaves no directory otherwise.
func TestBadAgentStarts(t *testing.T) {
	s := newSite(t, product(t))
	who := pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}
	node, nodeKey := s.Cert, s.Key
	expired, expiredKey := s.issue(t, s.ca, who, "old", pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	good, goodKey := s.issue(t, s.ca, who, "agent", pki.Validity{})
	for name, c := range map[string]struct{ cert, key, code string }{
		"node's certificate":  {node, nodeKey, "FY-CERT-006"},
		"expired certificate": {expired, expiredKey, "FY-CERT-004"},
		"another's key":       {good, nodeKey, "FY-CERT-010"},
		"no certificate":      {filepath.Join(s.dir, "none.crt"), goodKey, "FY-CERT-010"},
	} {
		dir := filepath.Join(s.dir, "agent")
		o := command(t, s.exe, environment(), "agent", "-o", "json", "--dir", dir, "--endpoints", s.Agents, "--ca", s.CA, "--cert", c.cert, "--key", c.key)
		code, _ := o.fault(t)
		require.Equal(t, c.code, code, "%s: %s", name, o.stderr)
		require.Equal(t, 1, o.code, name)
		require.NoDirExists(t, dir, name)
	}
}

// A data directory serves one process, whatever else the second one has of its own.
func TestDataDirectoryInUse(t *testing.T) {
	veteran := seasoned(t)
	first := veteran.start(t).leads()
	ctx, cancel := context.WithTimeout(t.Context(), commandBound)
	defer cancel()
	require.NoError(t, first.Signal(syscall.SIGSTOP)) // so that only the second one could change a file
	require.NoError(t, first.WaitPaused(ctx))
	before := tree(t, veteran.Data)
	second := siteOf(t, veteran.exe, veteran.ca, veteran.id)
	second.Data = veteran.Data
	for name, flags := range map[string][]string{
		"same administration socket": nil,
		"own administration socket":  {"--admin-socket", filepath.Join(second.dir, "admin.sock")},
	} {
		o := second.daemon(t, flags...)
		code, _ := o.fault(t)
		require.Equal(t, "FY-STORE-001", code, "%s: %s", name, o.stderr)
		require.Equal(t, 1, o.code, name)
		require.Equal(t, before, tree(t, veteran.Data), name)
	}
	require.NoError(t, first.Signal(syscall.SIGCONT))
	first.healthy()
}

// A daemon whose database is not there yet, or not Forgeyard's, keeps its place
// in the quorum and says what is wrong: Raft never waits for PostgreSQL.
func TestUnusableDatabaseStopsRolesOnly(t *testing.T) {
	exe := product(t)
	for _, c := range []struct {
		name  string
		spoil func(*site)
		code  string
	}{
		{"empty database that nobody migrates", func(s *site) { s.use(pgtest.NewEmpty(t)); s.Owner = "" }, "FY-DB-002"},
		{"database that does not exist", func(s *site) {
			db := pgtest.NewEmpty(t)
			s.use(db)
			for _, dsn := range []*string{&s.Owner, &s.App, &s.Direct} {
				*dsn = strings.ReplaceAll(*dsn, db.Name, "nowhere")
			}
		}, "FY-DB-012"},
		{"server that does not answer", func(s *site) {
			s.Owner, s.App, s.Direct = deadDSN, deadDSN, deadDSN
		}, "FY-DB-001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, exe)
			c.spoil(s)
			d := s.start(t, "--bootstrap").leads()
			d.logged(c.code)
			o := command(t, exe, environment("FORGEYARD_ENDPOINTS=http://"+s.HTTP), "cluster", "status")
			require.Zero(t, o.code, o.stderr)
			require.Contains(t, o.stdout, "DEGRADED")
		})
	}
}

// deadDSN names a directory without a server.
const deadDSN = "host=/nonexistent user=forgeyard_app dbname=forgeyard sslmode=disable"
