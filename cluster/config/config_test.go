// The configuration's promises: the example of the specification, layers, refusals with line and key.

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/config/ron"
	"github.com/forgeyard/forgeyard/fsm"
)

// sample is §318, character by character.
const sample = `(
    cluster: (
        mode: Distributed,
        node_id: "node-a",
        listen: "10.0.0.10:7443",
        seeds: [
            "10.0.0.11:7443",
            "10.0.0.12:7443",
        ],
    ),
)
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forgeyard.ron")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestSampleRONVerbatim(t *testing.T) {
	path := write(t, sample)
	l, err := Load(Options{File: path})
	require.NoError(t, err)
	want := Default()
	want.Cluster.Mode = Distributed
	want.Cluster.NodeID = "node-a"
	want.Cluster.Listen = "10.0.0.10:7443"
	want.Cluster.Seeds = []string{"10.0.0.11:7443", "10.0.0.12:7443"}
	want.derive()
	require.Equal(t, want, l.Config)
	require.Equal(t, path+":5:17", l.Origins["cluster.listen"].String())
	require.Equal(t, "default", l.Origins["http.listen"].String())
}

func TestExampleLoadsAndNamesEverySetting(t *testing.T) {
	text := Example()
	l, err := Load(Options{File: write(t, text)})
	require.NoError(t, err)
	require.Empty(t, l.Warnings)
	require.Equal(t, Distributed, l.Cluster.Mode)
	require.Equal(t, "/var/lib/forgeyard/identity/node.crt", l.Cluster.TLS.Cert.Name)
	for _, s := range Settings() {
		require.NotEmpty(t, s.Doc, s.Path)
		require.Contains(t, text, s.Doc, s.Path)
	}
}

func TestShowLoadsAgainAndHidesPasswords(t *testing.T) {
	path := write(t, `(postgres: (app: "postgres://app:s3cret@db/forgeyard?sslpassword=alsosecret", owner: "host=db user=o password='s3 cret'"))`)
	l, err := Load(Options{File: path})
	require.NoError(t, err)
	shown := l.Show(true)
	require.NotContains(t, shown, "s3cret")
	require.NotContains(t, shown, "s3 cret")
	require.NotContains(t, shown, "alsosecret")
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", l.Config, l.Config, l.Postgres.App), "s3cret")
	app, err := l.Postgres.App.Read()
	require.NoError(t, err)
	require.Contains(t, app, "s3cret")
	require.Contains(t, shown, "// "+path+":1:")
	_, err = Load(Options{File: write(t, l.Show(false))})
	require.NoError(t, err)
	require.Equal(t, `"REDACTED"`, InlineDSN("postgres://a:b@[::1").String(), "nothing of an unreadable address is shown")
}

func TestLayers(t *testing.T) {
	path := write(t, `(cluster: (listen: "127.0.0.1:1", name: "file"), http: (listen: "127.0.0.1:2"), agents: (listen: "127.0.0.1:3"))`)
	l, err := Load(Options{
		Environ: []string{
			"FORGEYARD_CONFIG=" + path, "FORGEYARD_CLUSTER_LISTEN=127.0.0.1:11", "FORGEYARD_HTTP_LISTEN=127.0.0.1:12",
			"FORGEYARD_CLUSTER_SEEDS=a:1, b:2", "FORGEYARD_CLUSTER_TIMERS_MULTIPLIER=2", "FORGEYARD_ROLES=SchedulerLeader,ReleaseCoordinator",
			"FORGEYARD_CLUSTER_TLS_KEY=env:KEY", "FORGEYARD_TRACE=/tmp/x", "OTHER=1",
		},
		Flags: map[string]string{"http.listen": "127.0.0.1:22"},
	})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:11", l.Cluster.Listen, "environment over file")
	require.Equal(t, "127.0.0.1:22", l.HTTP.Listen, "flag over environment")
	require.Equal(t, "127.0.0.1:3", l.Agents.Listen, "file over default")
	require.Equal(t, "file", l.Cluster.Name)
	require.Equal(t, []string{"a:1", "b:2"}, l.Cluster.Seeds)
	require.Equal(t, []fsm.Role{fsm.SchedulerLeader, fsm.ReleaseCoordinator}, l.Roles)
	require.Equal(t, SecretRef{FromEnv, "KEY"}, l.Cluster.TLS.Key)
	heartbeat, election, lease := l.Cluster.Timers.Scaled()
	require.Equal(t, []time.Duration{time.Second, time.Second, 500 * time.Millisecond}, []time.Duration{heartbeat, election, lease})
	require.Equal(t, "FORGEYARD_CLUSTER_LISTEN", l.Origins["cluster.listen"].String())
	require.Equal(t, "--http-listen", l.Origins["http.listen"].String())
}

func TestSearch(t *testing.T) {
	path := write(t, `(cluster: (name: "found"))`)
	missing := filepath.Join(t.TempDir(), "none.ron")
	l, err := Load(Options{Search: []string{missing, path}})
	require.NoError(t, err)
	require.Equal(t, "found", l.Cluster.Name)
	l, err = Load(Options{Search: []string{missing}})
	require.NoError(t, err)
	require.Empty(t, l.File)
	_, err = Load(Options{File: missing})
	requireCode(t, err, CodeUnreadable)
	_, err = Load(Options{File: "/dev/zero"})
	requireCode(t, err, CodeSyntax)
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, err)
}

// Every refusal names the line and the key.
func TestConfigValidation(t *testing.T) {
	for _, c := range []struct{ name, src, code, want string }{
		{"unknown key", "(\n cluster: (\n  node: \"a\"))", CodeSyntax, "FILE:3:3: unknown field `node` in cluster; did you mean `mode`?"},
		{"mode", `(cluster: (mode: distributed))`, CodeSyntax, "FILE:1:18: cluster.mode: unknown value `distributed`; did you mean `Distributed`?"},
		{"label", `(cluster: (node_id: "a b"))`, CodeInvalid, `FILE:1:21: cluster.node_id: "a b" may have letters, digits, '-', '_' and '.' only`},
		{"listen", `(cluster: (listen: "7443"))`, CodeInvalid, `FILE:1:20: cluster.listen: "7443" is not an address with a port`},
		{"port", `(agents: (listen: "h:70000"))`, CodeInvalid, `FILE:1:19: agents.listen: "h:70000" has no port between 0 and 65535`},
		{"one socket for two", `(agents: (listen: "127.0.0.1:7443"))`, CodeInvalid, `FILE:1:19: agents.listen: "127.0.0.1:7443" is also cluster.listen`},
		{"seed", `(cluster: (seeds: ["a:1", "b"]))`, CodeInvalid, `FILE:1:27: cluster.seeds[1]: "b" is not an address with a port`},
		{"seed port 0", `(cluster: (seeds: ["a:0"]))`, CodeInvalid, `FILE:1:20: cluster.seeds[0]: "a:0" has port 0, which nobody can dial`},
		{"own address", `(cluster: (listen: "a:1", seeds: ["a:1"]))`, CodeInvalid, `FILE:1:35: cluster.seeds[0]: "a:1" is this node's own address`},
		{"multiplier", `(cluster: (timers: (multiplier: 0.1)))`, CodeInvalid, `FILE:1:33: cluster.timers.multiplier: 0.1 must be between 0.2 and 20`},
		{"limit", `(cluster: (limits: (agents: 0)))`, CodeInvalid, `FILE:1:29: cluster.limits.agents: 0 must be between 1 and 65536`},
		{"snapshots", `(cluster: (snapshots: (entries: 8)))`, CodeInvalid, `FILE:1:33: cluster.snapshots.entries: 8 must be between 64 and 1048576`},
		{"snapshot bytes", `(cluster: (snapshots: (bytes: "1KiB")))`, CodeInvalid, `cluster.snapshots.bytes: 1024 must be between 65536 and 1073741824`},
		{"size", `(cluster: (limits: (body: "4 lots")))`, CodeSyntax, `FILE:1:27: a size is written "64MiB", "512KiB" or "4096B"`},
		{"role", `(roles: [SchedulerLeadr])`, CodeSyntax, "FILE:1:10: roles[0]: unknown value `SchedulerLeadr`; did you mean `SchedulerLeader`?"},
		{"role twice", `(roles: [SchedulerLeader, SchedulerLeader])`, CodeInvalid, "FILE:1:9: roles: SchedulerLeader is listed twice"},
		{"socket path", `(admin: (socket: "/` + strings.Repeat("x", 100) + `"))`, CodeInvalid, "is longer than 100 bytes"},
		{"relative data_dir", `(data_dir: "data")`, CodeInvalid, `FILE:1:12: data_dir: "data" is not an absolute path`},
		{"log level", `(log: (level: Verbose))`, CodeSyntax, "FILE:1:15: log.level: unknown value `Verbose`; choose one of Debug, Info, Warn, Error"},
		{"API in public", `(http: (listen: "0.0.0.0:7480"))`, CodeNotLoopback, `FILE:1:17: http.listen: "0.0.0.0:7480" is not a loopback address`},
		{"API in public with tokens alone", `(http: (listen: "0.0.0.0:7480"), api: (tokens: (keys: ["/k"])))`, CodeNotLoopback, `FILE:1:17: http.listen: "0.0.0.0:7480" is not a loopback address`},
		{"relative key", `(api: (tokens: (keys: ["/a", "b"])))`, CodeInvalid, `FILE:1:30: api.tokens.keys[1]: "b" is not an absolute path`},
		{"host with a port", `(api: (hosts: ["ci.example.org:7480"]))`, CodeInvalid, `FILE:1:16: api.hosts[0]: "ci.example.org:7480" is not the name of a host`},
		{"audience", `(api: (metrics: Everyone))`, CodeSyntax, "FILE:1:17: api.metrics: unknown value `Everyone`; choose one of Permission, Public"},
		{"API on a name", `(http: (listen: "example.org:7480"))`, CodeNotLoopback, `FILE:1:17: http.listen:`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.src)
			_, err := Load(Options{File: path})
			requireCode(t, err, c.code)
			require.Contains(t, err.Error(), strings.ReplaceAll(c.want, "FILE", path))
			require.Contains(t, err.Error(), "^", "a caret points at it")
		})
	}
}

func TestAPIInPublicNeedsTLS(t *testing.T) {
	l, err := Load(Options{
		File:    write(t, `(http: (listen: "0.0.0.0:7480"), api: (tls: true, hosts: ["ci.example.org"], metrics: Public))`),
		Environ: []string{"FORGEYARD_API_TOKENS_KEYS=/etc/forgeyard/tokens,/k.pub"},
	})
	require.NoError(t, err)
	require.Equal(t, API{TLS: true, Tokens: Tokens{Keys: []string{"/etc/forgeyard/tokens", "/k.pub"}}, Hosts: []string{"ci.example.org"}, Metrics: Everyone}, l.API)
	_, err = Load(Options{File: write(t, l.Show(false))})
	require.NoError(t, err, "what is shown loads again")
	_, err = Load(Options{Environ: []string{"FORGEYARD_API_TLSS=true"}})
	requireCode(t, err, CodeUnknownEnv)
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Load(Options{File: write(t, "(cluster: (listen: \"x\",\n node_id: \"!\"),\n http: (listen: \"1.2.3.4:5\"))")})
	var all Errors
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 3)
}

func TestFaultsOfEnvironmentAndFlags(t *testing.T) {
	_, err := Load(Options{Environ: []string{"FORGEYARD_CLUSTER_LISTEN=nowhere"}})
	requireCode(t, err, CodeInvalid)
	require.EqualError(t, err, `FORGEYARD_CLUSTER_LISTEN: cluster.listen: "nowhere" is not an address with a port`)
	_, err = Load(Options{Flags: map[string]string{"cluster.timers.lease": "5"}})
	requireCode(t, err, CodeSyntax)
	require.ErrorContains(t, err, `--cluster-timers-lease: "5" is not a duration`)
	_, err = Load(Options{Environ: []string{"FORGEYARD_CLUSTER_LISTE=127.0.0.1:1"}})
	requireCode(t, err, CodeUnknownEnv)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "did you mean FORGEYARD_CLUSTER_LISTEN?", e.Hint)
}

func TestElectionTimeoutMargin(t *testing.T) {
	load := func(timers string) error {
		_, err := Load(Options{File: write(t, "(cluster: (timers: ("+timers+")))")})
		return err
	}
	require.NoError(t, load(`max_rtt: "50ms"`))
	require.ErrorContains(t, load(`max_rtt: "51ms"`), "cluster.timers.election: 500ms must be at least 10 times max_rtt (51ms)")
	require.NoError(t, load(`max_rtt: "51ms", multiplier: 1.1`))
	require.ErrorContains(t, load(`heartbeat: "600ms"`), "cluster.timers.election: 500ms must be at least the heartbeat timeout 600ms")
	require.ErrorContains(t, load(`lease: "501ms"`), "cluster.timers.lease: 501ms must not exceed the heartbeat timeout 500ms")
	require.ErrorContains(t, load(`lease: "1ms"`), "cluster.timers.lease: 1ms must be between 20ms and 10s")
	require.ErrorContains(t, load(`lease: "124ms"`), "cluster.timers.lease: 124ms must be at least a quarter of the heartbeat timeout 500ms")
	require.ErrorContains(t, load(`multiplier: 0.2, max_rtt: "20ms"`), "must be at least 10 times max_rtt")
}

func TestTLSRefsOnly(t *testing.T) {
	for _, src := range []string{`File("/k")`, `"file:/k"`} {
		l, err := Load(Options{File: write(t, `(cluster: (tls: (key: `+src+`)))`)})
		require.NoError(t, err)
		require.Equal(t, SecretRef{FromFile, "/k"}, l.Cluster.TLS.Key)
	}
	key := "-----BEGIN PRIVATE KEY-----MC4CAQAwBQYDK2VwBCIEIA"
	_, err := Load(Options{File: write(t, `(cluster: (tls: (key: "`+key+`")))`)})
	requireCode(t, err, CodeInlineSecret)
	_, err = Load(Options{Flags: map[string]string{"cluster.tls.key": key}})
	requireCode(t, err, CodeInlineSecret)
	require.NotContains(t, err.Error(), key)
	_, err = Load(Options{File: write(t, `(cluster: (tls: (key: "/k")))`)})
	requireCode(t, err, CodeSyntax)
	require.ErrorContains(t, err, `expected a reference: File("path") or Env("NAME")`)
}

func TestSecretRefReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	require.NoError(t, os.WriteFile(path, []byte("dsn\n"), 0o600))
	got, err := DSN{Ref: SecretRef{FromFile, path}}.Read()
	require.NoError(t, err)
	require.Equal(t, "dsn", got)
	t.Setenv("FORGEYARD_TEST_SECRET", "from env")
	b, err := SecretRef{FromEnv, "FORGEYARD_TEST_SECRET"}.Read()
	require.NoError(t, err)
	require.Equal(t, "from env", string(b))
	_, err = SecretRef{FromEnv, "FORGEYARD_TEST_NOT_SET"}.Read()
	require.ErrorContains(t, err, "FORGEYARD_TEST_NOT_SET is not set")
	_, err = SecretRef{FromFile, path + ".none"}.Read()
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = SecretRef{}.Read()
	require.Error(t, err)
}

// There is no cluster-wide shared secret anywhere in the configuration (§128):
// every secret is a reference or a connection string, and no setting is named like one.
func TestNoSharedSecretKey(t *testing.T) {
	for _, s := range Settings() {
		typ := reflect.TypeFor[Config]().FieldByIndex(s.index).Type
		if typ == reflect.TypeFor[SecretRef]() || typ == reflect.TypeFor[DSN]() || s.Path == "api.tokens.keys" { // public keys
			continue
		}
		for _, word := range []string{"secret", "token", "password", "psk", "shared", "gossip", "encrypt"} {
			require.NotContains(t, s.Path, word)
		}
	}
	_, err := Load(Options{File: write(t, `(cluster: (shared_secret: "x"))`)})
	requireCode(t, err, CodeSyntax)
}

func TestRoleChoicesAreTheRoles(t *testing.T) {
	var names []string
	for _, r := range fsm.Roles() {
		names = append(names, r.String())
	}
	for _, s := range Settings() {
		if s.Path == "roles" {
			require.Equal(t, strings.Join(names, ","), s.choices)
		}
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{`"64MiB"`: 64 << 20, `"1kB"`: 1000, `512`: 512, `"4096B"`: 4096} {
		v, err := ron.Parse("f", []byte(text))
		require.NoError(t, err)
		var s Size
		require.NoError(t, s.UnmarshalRON(v), text)
		require.Equal(t, want, s)
	}
	for _, text := range []string{`"-1B"`, `"9999999999GiB"`, `""`, `[1]`, `"1.5MiB"`} {
		v, err := ron.Parse("f", []byte(text))
		require.NoError(t, err)
		var s Size
		require.Error(t, s.UnmarshalRON(v), text)
	}
}

func TestCASAndRetention(t *testing.T) {
	for _, bad := range []struct{ text, want string }{
		{`(cas: (url: "/srv/cas"))`, "is no URL of a content store"},
		{`(cas: (url: "file://srv/cas"))`, "names no absolute directory"},
		{`(cas: (url: "s3://key:secret@bucket"))`, "holds credentials"},
		{`(cas: (grace: "1h"))`, "is below 2h0m0s"},
		{`(retention: (runs: "1s"))`, "is below 1m0s"},
	} {
		_, err := Load(Options{File: write(t, bad.text)})
		require.ErrorContains(t, err, bad.want, bad.text)
	}
	l, err := Load(Options{File: write(t, `(cas: (url: "s3://bucket/prefix?endpoint=127.0.0.1:9000&insecure=true"), retention: (events: "24h"))`)})
	require.NoError(t, err)
	require.Equal(t, 24*time.Hour, l.Retention.Events)
}
