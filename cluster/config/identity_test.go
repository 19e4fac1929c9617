// The node's identity survives everything but a new enrolment.

package config

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/disk"
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

// TestChangedIdentityIsRefused: a bit or the end of the file changes; a standalone daemon has no certificate that would notice another id.
func TestChangedIdentityIsRefused(t *testing.T) {
	const flips, cuts = 100, 50
	first := mint()
	dir := t.TempDir()
	_, err := Persist(dir, first, false)
	require.NoError(t, err)
	path := filepath.Join(dir, nodeStateFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	refused, same := 0, 0
	for n := range flips + cuts {
		bad, how := disk.Flip(whole, rng)
		if n >= flips {
			bad, how = disk.Shorten(whole, n-flips, cuts)
		}
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		got, err := Persist(dir, mint(), false)
		if err == nil {
			require.Equal(t, first, got, how)
			same++
			continue
		}
		requireCode(t, err, CodeIdentity)
		now, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, bad, now, "%s: the file is left for the operator", how)
		refused++
	}
	t.Logf("%d refused, %d the same identity as before", refused, same)
	require.Greater(t, refused, flips)
}

// TestIdentityOfAnEarlierBuild: without a checksum it is read once, and written again with one.
func TestIdentityOfAnEarlierBuild(t *testing.T) {
	first := mint()
	dir := t.TempDir()
	path := filepath.Join(dir, nodeStateFile)
	b, err := json.Marshal(first)
	require.NoError(t, err)
	plain := append(slices.Clone(b), '\n')
	require.NoError(t, os.WriteFile(path, plain, 0o600))
	_, err = Persist(dir, mint(), true)
	requireCode(t, err, CodeIdentity)
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, plain, now, "what is refused stays")
	got, err := Persist(dir, mint(), false)
	require.NoError(t, err)
	require.Equal(t, first, got)
	now, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, seal.Add(b), now)
}
