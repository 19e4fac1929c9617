// Join tokens that must not work, with real daemons; and commands that are too large.

package clitest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/membership"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// founder runs a one-node cluster with a database.
func founder(t *testing.T, db *pgtest.Database) *running {
	t.Helper()
	s := newSite(t, product(t))
	s.use(db)
	d := s.start(t, "--bootstrap").leads()
	d.logged("PostgreSQL is writable")
	return d
}

// cli runs a client command against the daemon.
func (r *running) cli(args ...string) outcome {
	r.t.Helper()
	return command(r.t, r.exe, environment("FORGEYARD_ENDPOINTS=http://"+r.HTTP), append([]string{"-o", "json"}, args...)...)
}

// token makes a join token as an operator would.
func (r *running) token(id fsm.NodeID) string {
	r.t.Helper()
	o := r.cli("cluster", "add", id.String())
	require.Zero(r.t, o.code, o.stderr)
	var added membership.Added
	require.NoError(r.t, json.Unmarshal([]byte(o.stdout), &added))
	return added.Token
}

// newcomer is a site that wants to join the daemon's cluster.
func (r *running) newcomer(t *testing.T) *site {
	t.Helper()
	s := siteOf(t, r.exe, r.ca, cluster.NewNodeID())
	s.Seed, s.Owner, s.App, s.Direct = r.Cluster, r.Owner, r.App, r.Direct
	return s
}

func (s *site) tokenFile(t testing.TB, token string) string {
	t.Helper()
	file := filepath.Join(s.dir, "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return file
}

func TestBadTokensAreRefused(t *testing.T) {
	db := pgtest.New(t)
	d := founder(t, db)
	for _, c := range []struct {
		name string
		make func(*testing.T, *site) (token string)
		code string
	}{
		{"unknown", func(*testing.T, *site) string {
			return "fyj_" + base64.RawURLEncoding.EncodeToString(make([]byte, 32))
		}, "FY-JOIN-101"},
		{"expired", func(t *testing.T, s *site) string {
			token := d.token(s.id)
			execute(t, db, `UPDATE coordination.join_tokens SET expires_at = created_at WHERE node_id = $1`, s.id.String())
			return token
		}, "FY-JOIN-102"},
		{"used with another certificate", func(t *testing.T, s *site) string {
			token := d.token(s.id)
			redeem(t, s, token)
			s.Cert, s.Key = s.issue(t, s.ca, pki.Node(s.ca.Cluster(), s.id), "second", pki.Validity{})
			return token
		}, "FY-JOIN-103"},
		{"made for another node", func(*testing.T, *site) string { return d.token(cluster.NewNodeID()) }, "FY-JOIN-104"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.newcomer(t)
			file := s.tokenFile(t, c.make(t, s))
			o := s.daemon(t, "--join-token-file", file)
			code, _ := o.fault(t)
			require.Equal(t, c.code, code, o.stderr)
			require.Equal(t, 7, o.code)
			require.NotContains(t, tree(t, s.Data), "admin.sock")
			require.Empty(t, processes(t, s.dir))
		})
	}
	t.Run("a refused node joins with a good token", func(t *testing.T) {
		s := d.newcomer(t)
		o := s.daemon(t, "--join-token-file", s.tokenFile(t, d.token(cluster.NewNodeID())))
		require.Equal(t, 7, o.code, o.stderr)
		s.start(t, "--join-token-file", s.tokenFile(t, d.token(s.id)))
		eventually(t, "the node is an active member", func() bool {
			status, ok := d.status()
			return ok && slices.ContainsFunc(status.Members, func(m health.MemberRow) bool { return m.Node == s.id && m.State == fsm.Active })
		})
	})
	d.healthy()
}

// redeem uses a token as the site's node, and goes no further.
func redeem(t *testing.T, s *site, token string) {
	t.Helper()
	identity, err := pki.Load(s.Cert, s.Key, s.CA)
	require.NoError(t, err)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	e, err := transport.Listen(transport.Config{
		Conn: conn, Identity: identity, Now: time.Now,
		Hello: func() transport.Hello { return hello(identity.Subject()) },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	joiner := &membership.Joiner{Control: e, Seeds: []string{s.Seed}, Member: fsm.Member{
		Node: s.id, Incarnation: cluster.NewIncarnationID(), Name: "first", Endpoint: fsm.Endpoint(s.Cluster),
		Agents: fsm.Endpoint(s.Agents), Protocol: fsm.VersionRange{Min: 1, Max: 1}, Build: "test",
	}}
	ctx, cancel := context.WithTimeout(t.Context(), commandBound)
	defer cancel()
	_, err = joiner.Join(ctx, membership.Token(token))
	require.NoError(t, err)
}

// TestOversizeCommands sends requests above every bound: refused with a code, and nothing is stored.
func TestOversizeCommands(t *testing.T) {
	d := founder(t, pgtest.New(t))
	long := strings.Repeat("x", 40<<10)
	for _, c := range []struct {
		name string
		args []string
		code string
		exit int
	}{
		{"node name", []string{"cluster", "add", cluster.NewNodeID().String(), "--name", long[:1000]}, "FY-API-001", 1},
		{"job arguments", []string{"run", "submit", "--", "echo", long}, "FY-CLI-001", 2},
		{"run name", []string{"run", "submit", "--name", long[:1000], "--", "true"}, "FY-CLI-001", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := d.cli(c.args...)
			code, _ := o.fault(t)
			require.Equal(t, c.code, code, o.stderr)
			require.Equal(t, c.exit, o.code)
			require.Empty(t, o.stdout)
		})
	}
	for _, c := range []struct{ name, body, code string }{
		{"job arguments past the client", `{"name":"big","jobs":[{"name":"j","argv":["echo","` + long + `"]}]}`, "FY-RUN-001"},
		{"body above the limit", `{"name":"` + strings.Repeat(long, 30) + `"}`, "FY-API-003"},
		{"unknown field", `{"name":"x","jobz":[]}`, "FY-API-001"},
		{"not JSON", `garbage`, "FY-API-001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp, err := http.Post("http://"+d.HTTP+"/v1/runs", "application/json", strings.NewReader(c.body))
			require.NoError(t, err)
			defer resp.Body.Close()
			var doc struct{ Error struct{ Code string } }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&doc))
			require.Equal(t, c.code, doc.Error.Code)
			require.Equal(t, 4, resp.StatusCode/100)
		})
	}
	o := d.cli("run", "list")
	require.Zero(t, o.code, o.stderr)
	require.Contains(t, o.stdout, `"runs": []`)
	d.healthy()
}
