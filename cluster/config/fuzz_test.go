// Fuzzing of what operators write and a data directory keeps: the configuration, connection strings, the identity file.

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// A configuration loads or is refused with a code, and what is shown of it loads as the same.
func FuzzLoad(f *testing.F) {
	for name, s := range map[string]string{
		"example": Example(), "sample": sample, "nothing": "()", "empty": "", "JSON": `{"cluster":{"mode":"Distributed","node_id":"a","seeds":["10.0.0.11:7443"]}}`,
		"cut": sample[:len(sample)/2], "inline key": `(postgres: (app: "-----BEGIN PRIVATE KEY-----"))`, "password": `(postgres: (app: "postgres://u:secret@h/d"))`,
		"seed with a zone": `(cluster: (seeds: ["[fe80::1%eth0]:7443"]))`, "odd texts": "(data_dir: \"a\\u{7f}\\n\\\"b\", cas: (url: \"s3://b/\\u{0}\"))",
		"API on all addresses": `(http: (listen: "0.0.0.0:7480"))`, "a wrong duration": `(cluster: (timers: (heartbeat: "1")))`, "a size": `(agents: (disk: "10GiB"))`,
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		path := filepath.Join(t.TempDir(), "forgeyard.ron")
		require.NoError(t, os.WriteFile(path, []byte(src), 0o600))
		l, err := Load(Options{File: path})
		if err != nil {
			var one *Error
			require.True(t, errors.As(err, &one) && strings.HasPrefix(one.Code, "FY-CONFIG-"), "an error without a code: %v", err)
			return
		}
		shown := l.Show(true)
		require.NoError(t, os.WriteFile(path, []byte(shown), 0o600))
		again, err := Load(Options{File: path})
		require.NoError(t, err, shown)
		require.Equal(t, l.Show(false), again.Show(false), "a second form of one configuration")
	})
}

// A connection string that PostgreSQL's driver accepts is shown without its password.
func FuzzShownDSN(f *testing.F) {
	for name, s := range map[string]string{
		"URL": "postgres://u:hunter2@h:5432/d?sslmode=disable", "URL parameter": "postgresql://u@h/d?password=hunter2", "keywords": "host=/tmp user=u password=hunter2 dbname=d",
		"quoted": `password='hunter 2\' x' host=h`, "escaped space": `host=h password=hunter\ 2`, "spaces": "password = hunter2 host=h",
		"a URL inside": "host=/tmp password=a://hunter2", "in the middle of the host": "host=a://b password=hunter2", "capitals": "PASSWORD=hunter2 host=h",
		"escaped in a URL": "postgres://u:hunter%32@h/d", "several hosts": "postgres://u:hunter2@a:1,b:2/d", "no password": "host=h", "nothing": "",
		"a tab": "host=h\tpassword=hunter2\tuser=u", "a fragment": "postgres://:#hunter2@", "a number sign": "postgres://u:hunt#er2@h/d", "a colon first": "postgres://:hunter2@h/d", "of a key": "host=h sslpassword=hunter2 sslmode=disable",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		d := InlineDSN(dsn)
		require.Equal(t, d.String(), d.GoString())
		c, err := pgconn.ParseConfig(dsn)
		if err != nil || len(c.Password) < 4 || strings.Count(dsn, c.Password) > 1 {
			return // nothing that could be told from the rest of the text
		}
		require.NotContains(t, d.String(), c.Password)
	})
}

func FuzzNodeState(f *testing.F) {
	const good = `{"cluster":"01M8M7W1DW74Q8ZFNF70DAVE21","node":"01M8M7W1DW74Q8ZFNF70DAVE22"}`
	for name, s := range map[string]string{
		"good": good + "\n", "sealed": string(seal.Add([]byte(good))), "another seal": good + "\n00000000\n", "cut": good[:30], "empty": "", "null": "null", "nothing inside": "{}", "zero": `{"cluster":"00000000000000000000000000","node":"00000000000000000000000000"}`,
		"two": good + good, "lower case": strings.ToLower(good), "large": good + strings.Repeat(" ", nodeStateMax), "node twice": strings.Replace(good, "}", `,"node":""}`, 1),
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		dir := t.TempDir()
		path := filepath.Join(dir, nodeStateFile)
		require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
		have, _, err := readNodeState(path)
		want := NodeState{Cluster: fsm.ClusterID{1}, Node: fsm.NodeID{2}}
		if err != nil {
			_, err = Persist(dir, want, false)
			require.Error(t, err, "an identity that cannot be read is not replaced")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, s, string(b))
			return
		}
		require.False(t, have.Node.IsZero() || have.Cluster.IsZero())
		got, err := Persist(dir, want, false)
		require.NoError(t, err)
		require.Equal(t, have, got, "what was bound stays bound")
	})
}
