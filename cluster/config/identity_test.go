// The node's identity survives everything but a new enrolment.

package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
)

func mint() NodeState {
	return NodeState{Cluster: fsm.ClusterID(ulid.Make()), Node: fsm.NodeID(ulid.Make())}
}

func TestNodeIDPersisted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	first := mint()
	got, err := Persist(dir, first, true)
	require.NoError(t, err)
	require.Equal(t, first, got)

	got, err = Persist(dir, first, true)
	require.NoError(t, err, "a restart with the same certificate")
	require.Equal(t, first, got)

	got, err = Persist(dir, mint(), false)
	require.NoError(t, err)
	require.Equal(t, first, got, "a standalone daemon that minted new ids keeps the old ones")

	_, err = Persist(dir, mint(), true)
	requireCode(t, err, CodeIdentity)
	after, err := Persist(dir, first, true)
	require.NoError(t, err, "a refused identity changes nothing")
	require.Equal(t, first, after)

	info, err := os.Stat(filepath.Join(dir, nodeStateFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")
}

// The label, the addresses and the host have no part in the identity (§207).
func TestNodeIDNotHostname(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	first := mint()
	_, err := Persist(dir, first, false)
	require.NoError(t, err)
	for _, src := range []string{`(cluster: (node_id: "a", listen: "127.0.0.1:1"))`, `(cluster: (node_id: "b", listen: "127.0.0.2:2"))`} {
		l, err := Load(Options{File: write(t, src)})
		require.NoError(t, err)
		got, err := Persist(dir, mint(), false)
		require.NoError(t, err)
		require.Equal(t, first, got)
		require.NotEqual(t, l.Cluster.NodeID, got.Node.String())
	}
}

func TestDamagedIdentityIsRefused(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "half": `{"cluster":"01`, "zero": `{}`, "long": string(make([]byte, nodeStateMax+1))} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, nodeStateFile)
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			_, err := Persist(dir, mint(), false)
			requireCode(t, err, CodeIdentity)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(b), "the file is left for the operator")
		})
	}
	_, err := Persist(t.TempDir(), NodeState{}, false)
	require.Error(t, err)
}
