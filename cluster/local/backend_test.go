// The standalone engine: the suite of all engines, and its epochs and files over restarts and torn writes.

package local

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/conformance"
)

func open(t *testing.T, cfg Config) *Backend {
	t.Helper()
	b, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func propose(t *testing.T, b *Backend, c fsm.Command) cluster.Commit {
	t.Helper()
	commit, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(), Command: c})
	require.NoError(t, err)
	return commit
}

// grant begins the leadership of the backend's term and assigns a role to it.
func grant(t *testing.T, b *Backend, role fsm.Role) fsm.Epoch {
	t.Helper()
	self, v := b.Self(), b.View()
	propose(t, b, fsm.BumpEpoch{Term: b.term, ExpectedEpoch: v.LeaderEpoch.Epoch, Node: self.Node, Incarnation: self.Incarnation})
	v = b.View()
	return propose(t, b, fsm.AssignRole{Leader: v.LeaderEpoch, Role: role, ExpectedEpoch: v.Role(role).Epoch, Owner: self.Node, Incarnation: self.Incarnation}).Epoch
}

func TestBackendConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		conformance.Backend(t, func(t *testing.T) cluster.Backend { return open(t, Config{}) })
	})
	t.Run("durable", func(t *testing.T) {
		conformance.Backend(t, func(t *testing.T) cluster.Backend { return open(t, Config{Dir: t.TempDir()}) })
	})
}

// TestLocalEpochs shows that standalone epochs start at 1 and never fall or
// repeat across restarts, and that a restarted process owns nothing (§13, §165).
func TestLocalEpochs(t *testing.T) {
	dir := t.TempDir()
	var last fsm.Epoch
	var term uint64
	var before cluster.Identity
	for start := range 4 {
		b := open(t, Config{Dir: dir})
		v := b.View()
		require.Equal(t, last, v.Epoch)
		require.Greater(t, b.term, term)
		require.NotEqual(t, before.Incarnation, b.Self().Incarnation)
		if start > 0 {
			require.Equal(t, before.Cluster, b.Self().Cluster)
			require.Equal(t, before.Node, b.Self().Node)
			require.True(t, v.Role(fsm.SchedulerLeader).Vacant(), "the old incarnation's role is vacated")
			require.Equal(t, last, v.Role(fsm.SchedulerLeader).Epoch)
		}
		e := grant(t, b, fsm.SchedulerLeader)
		require.Equal(t, last+2, e, "one for the leadership, one for the role")
		last, term, before = e, b.term, b.Self()
		require.NoError(t, b.Close())
	}
}

func TestFirstEpochIsOne(t *testing.T) {
	b := open(t, Config{})
	self := b.Self()
	commit := propose(t, b, fsm.BumpEpoch{Term: b.term, Node: self.Node, Incarnation: self.Incarnation})
	require.Equal(t, fsm.Epoch(1), commit.Epoch)
}

func TestReplayWindowSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, Config{Dir: dir})
	p := fsm.Proposal{Request: cluster.NewRequestID(), Command: fsm.SetMaintenance{State: fsm.ReadOnly}}
	first, err := b.Propose(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	b = open(t, Config{Dir: dir})
	again, err := b.Propose(t.Context(), p)
	require.NoError(t, err)
	require.True(t, again.Replay)
	require.Equal(t, first.Epoch, again.Epoch)
}

func TestDirectoryIsRefused(t *testing.T) {
	made := func(t *testing.T) string {
		dir := t.TempDir()
		b := open(t, Config{Dir: dir})
		grant(t, b, fsm.SchedulerLeader)
		require.NoError(t, b.Close())
		return dir
	}
	state := func(dir string) string { return filepath.Join(dir, stateFile) }
	for name, tc := range map[string]struct {
		harm func(t *testing.T, dir string) cluster.Identity
		want *cluster.Error
	}{
		"in use": {func(t *testing.T, dir string) cluster.Identity {
			open(t, Config{Dir: dir})
			return cluster.Identity{}
		}, cluster.ErrStoreInUse},
		"one byte changed": {func(t *testing.T, dir string) cluster.Identity {
			data, err := os.ReadFile(state(dir))
			require.NoError(t, err)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(state(dir), data, 0o600))
			return cluster.Identity{}
		}, cluster.ErrStoreCorrupt},
		"truncated": {func(t *testing.T, dir string) cluster.Identity {
			require.NoError(t, os.Truncate(state(dir), 60))
			return cluster.Identity{}
		}, cluster.ErrStoreCorrupt},
		"empty": {func(t *testing.T, dir string) cluster.Identity {
			require.NoError(t, os.Truncate(state(dir), 0))
			return cluster.Identity{}
		}, cluster.ErrStoreCorrupt},
		"state removed": {func(t *testing.T, dir string) cluster.Identity {
			require.NoError(t, os.Remove(state(dir)))
			return cluster.Identity{}
		}, cluster.ErrStoreEmptied},
		"a newer build's": {func(t *testing.T, dir string) cluster.Identity {
			data, err := os.ReadFile(state(dir))
			require.NoError(t, err)
			const versions, header = 9, 9 + sha256.Size // of fsm's snapshot layout
			data[4]++                                   // the format version
			sum := sha256.Sum256(append(slices.Clone(data[:versions]), data[header:]...))
			copy(data[versions:], sum[:])
			require.NoError(t, os.WriteFile(state(dir), data, 0o600))
			return cluster.Identity{}
		}, cluster.ErrNewerBuild},
		"another node's": {func(*testing.T, string) cluster.Identity {
			return cluster.Identity{Node: cluster.NewNodeID()}
		}, cluster.ErrStoreForeign},
		"another cluster's": {func(*testing.T, string) cluster.Identity {
			return cluster.Identity{Cluster: cluster.NewClusterID()}
		}, cluster.ErrStoreForeign},
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			self := tc.harm(t, dir)
			before, _ := os.ReadFile(state(dir))
			_, err := Open(Config{Dir: dir, Self: self})
			require.ErrorIs(t, err, tc.want)
			after, _ := os.ReadFile(state(dir))
			require.Equal(t, before, after, "a refused file is left as it is")
		})
	}
}

// TestTornWriteKeepsTheOldState: a crash during a write leaves the temporary file behind.
func TestTornWriteKeepsTheOldState(t *testing.T) {
	dir := t.TempDir()
	b := open(t, Config{Dir: dir})
	e := grant(t, b, fsm.SchedulerLeader)
	require.NoError(t, b.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, tempFile), []byte("FYSN"), 0o600))
	b = open(t, Config{Dir: dir})
	require.Equal(t, e, b.View().Role(fsm.SchedulerLeader).Epoch)
}

func TestStorageFailureStopsAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := open(t, Config{Dir: dir})
	e := grant(t, b, fsm.SchedulerLeader)
	hint, stop := b.Changes()
	defer stop()
	require.NoError(t, os.RemoveAll(dir))

	self := b.Self()
	_, err := b.Propose(t.Context(), fsm.Proposal{Request: cluster.NewRequestID(),
		Command: fsm.BumpEpoch{Role: fsm.SchedulerLeader, ExpectedEpoch: e, Node: self.Node, Incarnation: self.Incarnation}})
	require.ErrorIs(t, err, cluster.ErrStoreFailed)
	require.True(t, cluster.OutcomeUnknown(err))
	<-hint
	require.True(t, b.Confirmed().IsZero(), "guards refuse from now on")
	_, leads := b.Leadership()
	require.False(t, leads)
	require.Equal(t, e, b.View().Role(fsm.SchedulerLeader).Epoch, "what was not stored was not shown")
	_, err = b.LinearizableView(t.Context())
	require.Equal(t, cluster.StorageFailure, cluster.KindOf(err))
}

func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(Config{})
		require.NoError(t, err)
		require.Equal(t, time.Now(), b.Confirmed())
		grant(t, b, fsm.SchedulerLeader)
		<-time.After(time.Hour)
		require.Equal(t, time.Now(), b.Confirmed())
		require.NoError(t, b.Close())
	})
}
