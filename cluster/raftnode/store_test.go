// The store refuses every doubt with its own code and leaves the files as they are (§168, §169, §172).

package raftnode

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// files is a fingerprint of every file under a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		out[path] = hex.EncodeToString(sum[:])
		return err
	}))
	return out
}

// lived is a stopped node that bootstrapped, committed and took a snapshot.
func lived(t *testing.T) *member {
	t.Helper()
	f := newFleet(t)
	m := f.add()
	m.start(bootstrap, alone)
	f.leader()
	for range 20 {
		f.propose(m.node, fsm.StartExclusiveOperation{Scope: fsm.GlobalGcCoordination, Owner: m.id, Incarnation: m.cfg.Self.Incarnation})
		f.propose(m.node, fsm.CompleteExclusiveOperation{
			Scope: fsm.GlobalGcCoordination, Owner: m.id, Incarnation: m.cfg.Self.Incarnation, Epoch: m.node.View().Epoch,
		})
	}
	m.close()
	return m
}

func TestStorageFilesInDoubtAreRefusedUntouched(t *testing.T) {
	db := func(m *member) string { return filepath.Join(m.dir, "raft", storeFile) }
	edit := func(t *testing.T, path string, at int64, with []byte) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		_, err = file.WriteAt(with, at)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	original, foreign := lived(t), lived(t)
	for name, c := range map[string]struct {
		damage func(t *testing.T, m *member)
		want   *cluster.Error
	}{
		"store removed": {func(t *testing.T, m *member) { require.NoError(t, os.Remove(db(m))) }, cluster.ErrStoreEmptied},
		"store emptied": {func(t *testing.T, m *member) { require.NoError(t, os.Truncate(db(m), 0)) }, cluster.ErrStoreEmptied},
		"directory emptied": {func(t *testing.T, m *member) {
			require.NoError(t, os.RemoveAll(filepath.Join(m.dir, "raft")))
		}, cluster.ErrStoreEmptied},
		"a fresh store in its place": {func(t *testing.T, m *member) {
			require.NoError(t, os.RemoveAll(filepath.Join(m.dir, "raft")))
			require.NoError(t, os.MkdirAll(filepath.Join(m.dir, "raft"), 0o700))
			fresh, err := openBolt(db(m), false)
			require.NoError(t, err)
			require.NoError(t, fresh.Close())
		}, cluster.ErrStoreEmptied},
		"truncated": {func(t *testing.T, m *member) {
			info, err := os.Stat(db(m))
			require.NoError(t, err)
			require.NoError(t, os.Truncate(db(m), info.Size()/2))
		}, cluster.ErrStoreCorrupt},
		"truncated to its meta pages": {func(t *testing.T, m *member) { require.NoError(t, os.Truncate(db(m), 8192)) }, cluster.ErrStoreCorrupt},
		"garbage": {func(t *testing.T, m *member) {
			require.NoError(t, os.WriteFile(db(m), make([]byte, 65536), 0o600))
		}, cluster.ErrStoreCorrupt},
		"first meta page gone":  {func(t *testing.T, m *member) { edit(t, db(m), 0, make([]byte, 4096)) }, cluster.ErrStoreCorrupt},
		"second meta page gone": {func(t *testing.T, m *member) { edit(t, db(m), 4096, make([]byte, 4096)) }, cluster.ErrStoreCorrupt},
		"pages overwritten": {func(t *testing.T, m *member) {
			info, err := os.Stat(db(m))
			require.NoError(t, err)
			noise := make([]byte, info.Size()-8192)
			for i := range noise {
				noise[i] = 0xA5
			}
			edit(t, db(m), 8192, noise)
		}, cluster.ErrStoreCorrupt},
		"older than the high-water mark": {func(t *testing.T, m *member) {
			require.NoError(t, writeJSON(filepath.Join(m.dir, "identity", markFile), mark{Term: 2, Applied: 100_000}))
		}, ErrStoreBackwards},
		"older term than the high-water mark": {func(t *testing.T, m *member) {
			require.NoError(t, writeJSON(filepath.Join(m.dir, "identity", markFile), mark{Term: 99}))
		}, ErrStoreBackwards},
		"marker lost": {func(t *testing.T, m *member) {
			require.NoError(t, os.Remove(filepath.Join(m.dir, "identity", markerFile)))
		}, ErrStoreUnmarked},
		"another node's log store": {func(t *testing.T, m *member) {
			require.NoError(t, os.RemoveAll(filepath.Join(m.dir, "raft")))
			require.NoError(t, os.CopyFS(filepath.Join(m.dir, "raft"), os.DirFS(filepath.Join(foreign.dir, "raft"))))
		}, cluster.ErrStoreForeign},
		"another node's log store file": {func(t *testing.T, m *member) {
			b, err := os.ReadFile(db(foreign))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(db(m), b, 0o600))
		}, cluster.ErrStoreForeign},
		"another node's log store behind a link": {func(t *testing.T, m *member) {
			require.NoError(t, os.Remove(db(m)))
			require.NoError(t, os.Symlink(db(foreign), db(m)))
		}, cluster.ErrStoreForeign},
		"another node's directory": {func(t *testing.T, m *member) { m.id = cluster.NewNodeID() }, cluster.ErrStoreForeign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newFleet(t).add()
			m.id, m.f.cluster, m.dir = original.id, original.f.cluster, filepath.Join(m.f.dir, "copy")
			require.NoError(t, os.CopyFS(m.dir, os.DirFS(original.dir)))
			c.damage(t, m)
			before := files(t, m.dir)
			_, err := Open(m.config())
			require.ErrorIs(t, err, c.want)
			require.Equal(t, cluster.StorageFailure, cluster.KindOf(err))
			require.Equal(t, before, files(t, m.dir))
		})
	}
}

func TestDamagedSnapshots(t *testing.T) {
	m := lived(t)
	n := m.start(alone)
	m.f.leader()
	require.NoError(t, n.raft.Snapshot().Error())
	m.close()
	states, err := filepath.Glob(filepath.Join(m.dir, "raft", "snapshots", "*", "state.bin"))
	require.NoError(t, err)
	require.NotEmpty(t, states)
	for _, s := range states {
		require.NoError(t, os.WriteFile(s, []byte("not a snapshot"), 0o600))
	}
	before := files(t, m.dir)
	_, err = Open(m.config())
	require.ErrorIs(t, err, cluster.ErrStoreCorrupt)
	require.Equal(t, before, files(t, m.dir))
}

func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	m := lived(t)
	m.start(alone)
	start := time.Now()
	before := files(t, filepath.Join(m.dir, "identity"))
	second := *m
	_, err := Open(second.config())
	require.ErrorIs(t, err, cluster.ErrStoreInUse)
	require.ErrorContains(t, err, filepath.Join(m.dir, "raft"))
	require.Less(t, time.Since(start), 5*time.Second)
	require.Equal(t, before[markerFile], files(t, filepath.Join(m.dir, "identity"))[markerFile])
}

// A lock held by another process is seen too, not only one of this process.
func TestStorageFilesInUseByAnotherProcess(t *testing.T) {
	t.Parallel()
	m := lived(t)
	flock, err := exec.LookPath("flock")
	require.NoError(t, err)
	holder := exec.CommandContext(t.Context(), flock, "-x", filepath.Join(m.dir, "raft", storeFile), "sh", "-c", "echo held; read x")
	in, err := holder.StdinPipe()
	require.NoError(t, err)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	defer func() {
		require.NoError(t, in.Close())
		_ = holder.Wait() // read meets the end of its input and fails
	}()
	_, err = out.Read(make([]byte, 4))
	require.NoError(t, err)
	_, err = Open(m.config())
	require.ErrorIs(t, err, cluster.ErrStoreInUse)
}

func TestBootstrapOverStateIsRefused(t *testing.T) {
	m := lived(t)
	before := files(t, m.dir)
	cfg := m.config()
	cfg.Bootstrap = true
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrBootstrapTwice)
	require.Equal(t, before, files(t, m.dir))
	// Without it the node goes on where it was.
	m.start(alone)
	m.f.leader()
	require.Equal(t, m.f.cluster, m.node.View().ClusterID)
}

// A crash between the library's bootstrap and the founding command: the next
// start, without the flag, finishes the operator's explicit act.
func TestBootstrapFinishedAfterCrash(t *testing.T) {
	f := newFleet(t)
	m := f.add()
	cfg := m.config()
	require.NoError(t, cfg.setDefaults())
	st, err := openStore(cfg)
	require.NoError(t, err)
	lib := cfg.library(nil)
	require.NoError(t, raft.BootstrapCluster(lib, st.log, st.stable, st.snapshots, cfg.Transport,
		raft.Configuration{Servers: []raft.Server{{ID: lib.LocalID, Address: serverAddress(m.id)}}}))
	require.NoError(t, st.close())
	m.start(alone)
	f.eventually(func() bool { return m.node.View().ClusterID == f.cluster })
}

func TestElectionStabilityTimersThatCannotWork(t *testing.T) {
	ms := time.Millisecond
	for name, timers := range map[string]Timers{
		"lease far below heartbeat": {30 * time.Second, 30 * time.Second, time.Second, 20 * ms},
		"lease a tenth":             {500 * ms, 500 * ms, 50 * ms, 20 * ms},
		"lease above heartbeat":     {200 * ms, 500 * ms, 300 * ms, 20 * ms},
		"election below heartbeat":  {500 * ms, 300 * ms, 250 * ms, 20 * ms},
		"zero heartbeat":            {0, 500 * ms, 250 * ms, 20 * ms},
		"negative lease":            {500 * ms, 500 * ms, -250 * ms, 20 * ms},
		"zero commit":               {500 * ms, 500 * ms, 250 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFleet(t).add()
			cfg := m.config()
			cfg.Timers = timers
			_, err := Open(cfg)
			require.ErrorIs(t, err, ErrTimers)
			require.NoDirExists(t, m.dir)
		})
	}
	require.NoError(t, DefaultTimers().validate())
	require.NoError(t, fast.validate())
}

// What the disk refuses to give is not called damaged: it would be thrown away.
func TestRefusedReadIsNotDamage(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EACCES, syscall.EMFILE, syscall.ENOSPC, syscall.EROFS} {
		err := fmt.Errorf("entry 7: %w", &fs.PathError{Op: "read", Path: storeFile, Err: errno})
		require.ErrorIs(t, storeError(cluster.ErrStoreCorrupt, err, "x"), cluster.ErrStoreFailed, errno)
		require.ErrorIs(t, guarded(storeFile, func() error { return err }), cluster.ErrStoreFailed, errno)
	}
	for damage, want := range map[any]error{
		pageFault{}:            cluster.ErrStoreFailed,
		"page 7 already freed": cluster.ErrStoreCorrupt,
	} {
		require.ErrorIs(t, guarded(storeFile, func() error { panic(damage) }), want)
	}
	require.ErrorIs(t, storeError(cluster.ErrStoreCorrupt, syscall.ENOENT, "x"), cluster.ErrStoreCorrupt)
	require.ErrorIs(t, storeError(cluster.ErrStoreCorrupt, io.ErrUnexpectedEOF, "x"), cluster.ErrStoreCorrupt)
	require.ErrorIs(t, storeError(cluster.ErrStoreCorrupt, cluster.ErrStoreForeign, "x"), cluster.ErrStoreForeign)
}

// blindLog is a log whose end the disk no longer gives.
type blindLog struct{ raft.LogStore }

func (blindLog) LastIndex() (uint64, error) {
	return 0, &fs.PathError{Op: "read", Path: storeFile, Err: syscall.EIO}
}

func TestRefusedReadWhenTheEngineBeginsIsNotDamage(t *testing.T) {
	m := lived(t)
	cfg := m.config()
	cfg.WrapLog = func(l Log) Log { return blindLog{l} }
	_, err := Open(cfg)
	require.ErrorIs(t, err, cluster.ErrStoreFailed)
	require.NotErrorIs(t, err, cluster.ErrStoreCorrupt)
	m.start(alone)
	m.f.leader()
}

// pageFault is what the runtime panics with when a page of a mapped file cannot be read.
type pageFault struct{}

func (pageFault) Error() string { return "unexpected fault address" }
func (pageFault) RuntimeError() {}
func (pageFault) Addr() uintptr { return 4096 }

// A snapshot that the disk does not give may be whole: none older is taken for it,
// and it is not called damaged, whatever is wrong with another one.
func TestUnreadableSnapshotIsRefused(t *testing.T) {
	original := lived(t)
	original.start(alone)
	original.f.leader()
	for range 2 {
		fill(t, original, 1, 4)
		require.NoError(t, original.node.raft.Snapshot().Error())
	}
	taken := snapshots(t, original)
	require.Len(t, taken, 2)
	original.close()
	const newest, older = 0, 1
	without := func(file string) func(*testing.T, Config) {
		return func(t *testing.T, cfg Config) {
			require.NoError(t, os.Remove(filepath.Join(cfg.Dir, snapshotsDir, taken[newest].ID, file)))
		}
	}
	for name, c := range map[string]struct {
		damage  func(*testing.T, Config) // before, for good
		refuse  int                      // a file of which snapshot
		file    string
		refused bool
		from    int // which one a start goes on from, when it is not refused or no longer
	}{
		"newest, its state":                      {nil, newest, stateFile, true, newest},
		"newest, its seal":                       {nil, newest, sealFile, true, newest},
		"newest, its description":                {nil, newest, metaFile, true, newest},
		"older, its state":                       {nil, older, stateFile, false, newest},
		"older, its seal":                        {nil, older, sealFile, false, newest},
		"older, its description":                 {nil, older, metaFile, false, newest},
		"older behind one without a seal":        {without(sealFile), older, stateFile, true, older},
		"older behind one without a description": {without(metaFile), older, metaFile, true, older},
		"newest but for one that holds no state": {sealNoise, newest, stateFile, true, newest},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFleet(t).add()
			m.id, m.f.cluster, m.dir = original.id, original.f.cluster, filepath.Join(m.f.dir, "copy")
			require.NoError(t, os.CopyFS(m.dir, os.DirFS(original.dir)))
			cfg := m.config()
			require.NoError(t, cfg.setDefaults())
			if c.damage != nil {
				c.damage(t, cfg)
			}
			starts := func() {
				st, err := openStore(cfg)
				require.NoError(t, err)
				require.Equal(t, taken[c.from].ID, st.found.snapshot.ID)
				require.NoError(t, st.close())
			}
			path, aside := filepath.Join(cfg.Dir, snapshotsDir, taken[c.refuse].ID, c.file), filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.Rename(path, aside))
			require.NoError(t, os.Mkdir(path, 0o700)) // to read a directory is refused
			if c.refused {
				before := files(t, m.dir)
				_, err := openStore(cfg)
				require.ErrorIs(t, err, cluster.ErrStoreFailed)
				require.NotErrorIs(t, err, cluster.ErrStoreCorrupt)
				require.ErrorIs(t, err, syscall.EISDIR)
				require.Equal(t, before, files(t, m.dir))
			} else {
				starts()
			}
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Rename(aside, path))
			starts()
		})
	}
}

// sealNoise adds a newest snapshot that is as it was written, but no state.
func sealNoise(t *testing.T, cfg Config) {
	t.Helper()
	s, err := openSnapshots(cfg.Dir, cfg.Logger)
	require.NoError(t, err)
	list, err := s.List()
	require.NoError(t, err)
	last := list[0]
	sink, err := s.Create(1, last.Index+1, last.Term, last.Configuration, last.ConfigurationIndex, cfg.Transport)
	require.NoError(t, err)
	_, err = sink.Write([]byte("no state"))
	require.NoError(t, err)
	require.NoError(t, sink.Close())
}
