// Tokens and credentials of the command line: made against a real server over its socket, used over TLS.

package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/transport/pki"
)

type records struct{ rows []cluster.AuditRecord }

func (r *records) Record(_ context.Context, row cluster.AuditRecord) error {
	r.rows = append(r.rows, row)
	return nil
}

// guarded is a daemon's server with TLS and tokens; keys is where it looks for public keys.
type guarded struct {
	base, socket, pki, keys string
	audit                   *records
}

func serveGuarded(t *testing.T) guarded {
	t.Helper()
	g := guarded{pki: authority(t), keys: t.TempDir(), audit: &records{}}
	ca, err := pki.LoadAuthority(g.pki)
	require.NoError(t, err)
	issued, err := ca.Issue(pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make())), pki.Validity{})
	require.NoError(t, err)
	identity, err := issued.Identity(ca)
	require.NoError(t, err)
	keys, err := token.OpenKeys([]string{g.keys}, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	granter := token.Granter{
		Cluster: ca.Cluster(), Epoch: func() fsm.Epoch { return 1 }, Keys: keys, Audit: g.audit, Now: time.Now,
	}
	dir, err := os.MkdirTemp("", "fy") // socket paths are bounded
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	admin, err := server.ListenAdmin(socket)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{
		Listen: l, Admin: admin, Private: granter.Routes(),
		Access: server.Access{Identity: identity, Tokens: token.NewVerifier(ca.Cluster(), keys, time.Now)},
		Routes: []access.Route{{Method: http.MethodGet, Pattern: "/v1/runs", Permission: access.RunRead, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			access.WriteJSON(w, http.StatusOK, runner.RunListDocument{APIVersion: apiVersion, Kind: "RunList", Runs: []runner.Run{}})
		})}},
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	g.base, g.socket = "https://"+l.Addr().String(), "unix://"+socket
	return g
}

func with(environ ...string) func(*screen) {
	return func(s *screen) { s.Environ = append(s.Environ, environ...) }
}

func TestTokenFromKeyToUse(t *testing.T) {
	g := serveGuarded(t)
	mine := filepath.Join(t.TempDir(), "ops")
	s := invoke(t, nil, nil, "token", "keygen", "--out", mine, "-o", "json")
	require.Zero(t, s.code, s.err.String())
	var made SigningKey
	require.NoError(t, json.Unmarshal(s.out.Bytes(), &made))
	issue := []string{"token", "issue", "--key", made.Key, "--sub", "ci", "--permission", "run.read,run.submit", "--ttl", "10m"}

	s = invoke(t, []string{g.socket}, nil, issue...)
	require.Equal(t, ExitFailed, s.code)
	require.Contains(t, s.err.String(), "FY-AUTH-008", "the daemon does not trust the key yet")
	public, err := os.ReadFile(made.Public)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(g.keys, "ops.pub"), public, 0o600))

	require.Eventually(t, func() bool {
		s = invoke(t, []string{g.socket}, nil, issue...)
		return s.code == ExitOK
	}, 10*time.Second, 100*time.Millisecond, "a new key is found without a restart")
	text := strings.TrimSpace(s.out.String())
	require.Len(t, strings.Split(text, "."), 3, "standard output is the token alone: %q", s.out.String())
	require.Contains(t, s.err.String(), "for ci, valid until")
	require.NotContains(t, s.err.String(), text)
	require.Len(t, g.audit.rows, 1)
	require.Equal(t, "ci", g.audit.rows[0].Target)

	caFile := filepath.Join(g.pki, pki.CAFile)
	list := []string{"run", "list", "-o", "json"}
	s = invoke(t, []string{g.base}, with("FORGEYARD_CA="+caFile), list...)
	require.Equal(t, ExitDenied, s.code)
	require.Equal(t, "FY-AUTH-001", s.problem(t).Code)
	s = invoke(t, []string{g.base}, with("FORGEYARD_CA="+caFile, "FORGEYARD_TOKEN="+text), list...)
	require.Zero(t, s.code, s.err.String())
	s = invoke(t, []string{strings.TrimPrefix(g.base, "https://")}, with("FORGEYARD_TOKEN="+text), append(list, "--ca", caFile)...)
	require.Zero(t, s.code, "with an authority an endpoint without a scheme is https: %s", s.err.String())
	s = invoke(t, []string{g.base}, with("FORGEYARD_CA="+caFile, "FORGEYARD_TOKEN="+text), "cluster", "status", "-o", "json")
	require.NotZero(t, s.code)

	file := filepath.Join(t.TempDir(), "ci.token")
	s = invoke(t, []string{g.socket}, nil, append(issue, "--out", file, "-o", "json")...)
	require.Zero(t, s.code, s.err.String())
	require.NotContains(t, s.out.String(), `"token"`)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	s = invoke(t, []string{g.base}, with("FORGEYARD_TOKEN=wrong"), append(list, "--ca", caFile, "--token-file", file)...)
	require.Zero(t, s.code, "a flag goes before the environment: %s", s.err.String())
	s = invoke(t, []string{g.socket}, nil, append(issue, "--out", file)...)
	require.Equal(t, ExitRefused, s.code, "no file is replaced")
	require.Len(t, g.audit.rows, 2, "and nothing was granted")
}

func TestAdminCertificateOfTheCommandLine(t *testing.T) {
	g := serveGuarded(t)
	caFile := filepath.Join(g.pki, pki.CAFile)
	for kind, code := range map[string]string{"admin": "", "agent": "FY-AUTH-007"} {
		s := invoke(t, nil, nil, "pki", "issue", kind, "alice-"+kind, "--dir", g.pki, "-o", "json")
		require.Zero(t, s.code, s.err.String())
		var got Issued
		require.NoError(t, json.Unmarshal(s.out.Bytes(), &got))
		s = invoke(t, []string{g.base}, nil, "run", "list", "-o", "json", "--ca", caFile, "--cert", got.Cert, "--cert-key", got.Key)
		if code == "" {
			require.Zero(t, s.code, s.err.String())
			continue
		}
		require.Equal(t, ExitDenied, s.code)
		require.Equal(t, code, s.problem(t).Code)
	}
	other := filepath.Join(authority(t), pki.CAFile)
	s := invoke(t, []string{g.base}, nil, "run", "list", "-o", "json", "--ca", other)
	require.Equal(t, ExitFailed, s.code)
	require.Contains(t, s.problem(t).Message, "it is not trusted: FY-CERT-005")
}

func TestWrongCredentials(t *testing.T) {
	dir := t.TempDir()
	secret := "eyJhbGciOiJFZERTQSJ9.c2VjcmV0.c2lnbmF0dXJl"
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, c := range map[string]struct {
		endpoint string
		environ  []string
		args     []string
		want     string
	}{
		"https without authority": {"https://127.0.0.1:1", nil, nil, "https needs the cluster's ca.crt"},
		"token in plain text":     {"http://10.0.0.1:7480", []string{"FORGEYARD_TOKEN=" + secret}, nil, "would travel in plain text"},
		"no token file":           {"", nil, []string{"--token-file", filepath.Join(dir, "none")}, "no such file"},
		"empty token file":        {"", nil, []string{"--token-file", file("empty", "\n")}, "is empty"},
		"two lines":               {"", nil, []string{"--token-file", file("two", secret+"\n"+secret)}, "is none"},
		"endless":                 {"", nil, []string{"--token-file", "/dev/zero"}, "is none"},
		"no authority":            {"", nil, []string{"--ca", file("ca", "x")}, "FY-CERT-010"},
		"certificate alone":       {"", nil, []string{"--cert", "x"}, "belong together"},
		"no certificate":          {"", nil, []string{"--cert", "x", "--cert-key", "y"}, "--cert: "},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := c.endpoint
			if endpoint == "" {
				endpoint = "http://127.0.0.1:1"
			}
			s := invoke(t, []string{endpoint}, with(c.environ...), append([]string{"run", "list"}, c.args...)...)
			require.NotZero(t, s.code)
			require.Contains(t, s.err.String(), c.want)
			require.NotContains(t, s.err.String(), secret)
		})
	}
	key := filepath.Join(dir, "key")
	_, err := token.Generate(key)
	require.NoError(t, err)
	private := filepath.Join(key, token.PrivateFile)
	for want, args := range map[string][]string{
		"are needed":                       {"--sub", "x"},
		"administration socket only":       {"--key", private, "--sub", "x", "--permission", "run.read"},
		"unknown permission":               {"--key", private, "--sub", "x", "--permission", "root", "--endpoint", "unix:///none"},
		"the lifetime must be between":     {"--key", private, "--sub", "x", "--permission", "run.read", "--ttl", "13h", "--endpoint", "unix:///none"},
		"the subject must have":            {"--key", private, "--sub", "x y", "--permission", "run.read", "--endpoint", "unix:///none"},
		"no Ed25519 private key":           {"--key", file("bad", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "--sub", "x", "--permission", "run.read", "--endpoint", "unix:///none"},
		"no daemon answered":               {"--key", private, "--sub", "x", "--permission", "run.read", "--endpoint", "unix:///none"},
		"forgeyard token issue takes no a": {"x"},
	} {
		s := invoke(t, nil, nil, append([]string{"token", "issue"}, args...)...)
		require.NotZero(t, s.code)
		require.Contains(t, s.err.String(), want)
	}
}
