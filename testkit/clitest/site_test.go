// A site: one daemon's configuration, certificates and data, made as an operator would.

package clitest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// site is what one daemon needs. Fields may be changed before it starts.
type site struct {
	exe, dir string
	ca       *pki.Authority
	id       fsm.NodeID

	Data, Cert, Key, CA   string
	Cluster, Agents, HTTP string // addresses
	Seed                  string // "" for none
	Owner, App, Direct    string // DSNs; "" for none
	ClusterExtra          string // further text inside cluster: (…)
}

// newSite makes a site with an authority of its own.
func newSite(t testing.TB, exe string) *site {
	t.Helper()
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	return siteOf(t, exe, ca, cluster.NewNodeID())
}

// siteOf makes a site of a cluster for a node.
func siteOf(t testing.TB, exe string, ca *pki.Authority, id fsm.NodeID) *site {
	t.Helper()
	s := &site{exe: exe, dir: scratch(t), ca: ca, id: id}
	s.Data = filepath.Join(s.dir, "data")
	s.Cluster, s.Agents, s.HTTP = freeUDP(t), freeUDP(t), freeTCP(t)
	s.CA = filepath.Join(s.dir, "ca.crt")
	require.NoError(t, os.WriteFile(s.CA, ca.CertPEM(), 0o600))
	s.Cert, s.Key = s.issue(t, ca, pki.Node(ca.Cluster(), id), "node", pki.Validity{})
	return s
}

func (s *site) issue(t testing.TB, ca *pki.Authority, who pki.Subject, name string, v pki.Validity) (cert, key string) {
	t.Helper()
	issued, err := ca.Issue(who, v)
	require.NoError(t, err)
	cert, key, err = issued.Write(s.dir, name)
	require.NoError(t, err)
	return cert, key
}

// branch is the same node with a copy of its data and addresses of its own.
func (s *site) branch(t testing.TB) *site {
	t.Helper()
	b := siteOf(t, s.exe, s.ca, s.id)
	require.NoError(t, os.CopyFS(b.Data, os.DirFS(s.Data)))
	return b
}

func (s *site) use(db *pgtest.Database) { s.Owner, s.App, s.Direct = db.Owner, db.App, db.Direct }

func freeUDP(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return c.LocalAddr().String()
}

func freeTCP(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

var configText = template.Must(template.New("config").Parse(`(
    cluster: (
        mode: Distributed, node_id: "node-a", listen: "{{.Cluster}}", advertise: "{{.Cluster}}",
        seeds: [{{with .Seed}}"{{.}}"{{end}}],
        tls: (ca: File("{{.CA}}"), cert: File("{{.Cert}}"), key: File("{{.Key}}")),
        {{.ClusterExtra}}
    ),
    agents: (listen: "{{.Agents}}", advertise: "{{.Agents}}"),
    http: (listen: "{{.HTTP}}"),
    data_dir: "{{.Data}}",
    {{with .App}}postgres: ({{with $.Owner}}owner: "{{.}}", {{end}}app: "{{.}}", direct: "{{$.Direct}}"),{{end}}
)
`))

// config writes the configuration as it is now.
func (s *site) config(t testing.TB) string {
	t.Helper()
	path := filepath.Join(s.dir, "forgeyard.ron")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, configText.Execute(f, s))
	require.NoError(t, f.Close())
	return path
}

// daemon runs the daemon until it ends by itself.
func (s *site) daemon(t testing.TB, flags ...string) outcome {
	t.Helper()
	return command(t, s.exe, environment(), append([]string{"daemon", "--config", s.config(t), "-o", "json"}, flags...)...)
}

// running is a started daemon.
type running struct {
	*site
	*fleet.Process
	t testing.TB
}

// start runs the daemon in the background until the test ends.
func (s *site) start(t testing.TB, flags ...string) *running {
	t.Helper()
	args := append([]string{"daemon", "--config", s.config(t), "-o", "json"}, flags...)
	p, err := fleet.StartProcess("daemon", s.exe, args, nil, s.dir, s.log())
	require.NoError(t, err)
	r := &running{s, p, t}
	t.Cleanup(r.stop)
	return r
}

func (s *site) log() string { return filepath.Join(s.dir, "daemon.log") }

func (r *running) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), commandBound)
	defer cancel()
	require.NoError(r.t, r.Stop(ctx))
}

// logged waits until the daemon's log contains a text.
func (r *running) logged(text string) {
	r.t.Helper()
	eventually(r.t, "the log says "+text, func() bool { return len(grep(r.t, r.log(), text)) > 0 })
}

// leads waits until the daemon leads under a committed epoch.
func (r *running) leads() *running {
	r.t.Helper()
	eventually(r.t, "the daemon leads; see "+r.log(), func() bool {
		s, ok := r.status()
		return ok && s.Leader.Node == r.id && s.Leader.Epoch.Epoch > 0
	})
	return r
}

// status is what the daemon says now, if it answers.
func (r *running) status() (health.ClusterStatus, bool) {
	var s health.ClusterStatus
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.HTTP+"/v1/cluster/status", nil)
	require.NoError(r.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, false
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s) == nil
}

// healthy requires that the daemon still leads and that nothing restarted it.
func (r *running) healthy() {
	r.t.Helper()
	require.True(r.t, r.Running(), "the daemon has ended")
	r.leads()
}
