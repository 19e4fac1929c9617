// Opens the durable store safely: every doubt is a typed refusal that leaves the files as they are.

package raftnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

const (
	storeFile      = "raft.db"
	keyCurrentTerm = "CurrentTerm"
)

// contents is what a check of the files found.
type contents struct {
	term        uint64
	first, last uint64
	snapshot    *raft.SnapshotMeta // newest whole one, nil when there is none
	state       *fsm.State         // the state as of the high-water mark

	configuration *configuration // the newest one known to be committed, nil when there is none
}

func (c contents) empty() bool { return c.term == 0 && c.last == 0 && c.snapshot == nil }

// held is the newest entry that is in the log or a snapshot.
func (c contents) held() uint64 {
	if c.snapshot != nil {
		return max(c.last, c.snapshot.Index)
	}
	return c.last
}

// store is the open durable state of one node.
type store struct {
	bolt      *raftboltdb.BoltStore // under log and stable, which everything goes through
	log       sealedLog
	stable    *sealedStable
	snapshots *snapshotStore
	high      *highWater
	found     contents
}

func (s *store) close() error { return errors.Join(s.bolt.Close(), s.log.tail.close()) }

// openStore checks marker, marks, log store and snapshots against each other,
// and only then opens the log store for writing.
func openStore(cfg Config) (*store, error) {
	for _, dir := range []string{cfg.Dir, cfg.IdentityDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, cluster.ErrStoreFailed.Wrap(err, "create %s", dir)
		}
	}
	m, marked, err := readMarker(cfg.IdentityDir)
	if err != nil {
		return nil, storeError(cluster.ErrStoreCorrupt, err, "the identity marker in %s cannot be read", cfg.IdentityDir)
	}
	if marked && (m.Node != cfg.Self.Node || m.Cluster != cfg.Self.Cluster) {
		return nil, cluster.ErrStoreForeign.Wrap(nil, "%s belongs to node %s of cluster %s, this is node %s of cluster %s",
			cfg.Dir, m.Node, m.Cluster, cfg.Self.Node, cfg.Self.Cluster)
	}
	high, err := openHighWater(cfg.IdentityDir)
	if err == nil && marked && !high.there {
		err = fs.ErrNotExist // it is written before the marker
	}
	if err != nil {
		return nil, storeError(cluster.ErrStoreCorrupt, err, "the high-water mark in %s cannot be read", cfg.IdentityDir)
	}
	tail := uint64(0)
	if marked {
		if tail, err = readTail(cfg.IdentityDir); err != nil {
			return nil, storeError(cluster.ErrStoreCorrupt, err, "the tail mark in %s cannot be read", cfg.IdentityDir)
		}
	}

	path := filepath.Join(cfg.Dir, storeFile)
	exists, err := storeExists(path)
	if err != nil {
		return nil, cluster.ErrStoreFailed.Wrap(err, "look at %s", path)
	}
	if marked && !exists {
		return nil, cluster.ErrStoreEmptied.Wrap(nil, "%s is missing or empty, though this node has run here since %s", path, m.Created.Format(time.RFC3339))
	}
	snapshots, err := openSnapshots(cfg.Dir, cfg.Logger)
	if err != nil {
		return nil, cluster.ErrStoreFailed.Wrap(err, "open the snapshots in %s", cfg.Dir)
	}
	found, err := inspect(path, exists, snapshots, high.load(), cfg.Self)
	if err != nil {
		return nil, err
	}
	switch {
	case !marked && !found.empty():
		return nil, ErrStoreUnmarked.Wrap(nil, "%s holds state, but %s has no marker", path, cfg.IdentityDir)
	case cfg.Bootstrap && !found.empty():
		return nil, ErrBootstrapTwice.Wrap(nil, "%s holds state of term %d", cfg.Dir, found.term)
	case found.held() < tail: // after an installed snapshot the log may be empty
		return nil, ErrStoreBackwards.Wrap(nil, "%s ends at entry %d; it had reached entry %d", path, found.last, tail)
	}
	if !exists {
		if err := createBolt(path); err != nil {
			return nil, storeError(cluster.ErrStoreFailed, err, "create %s", path)
		}
	}
	if !marked {
		// Only now: a crash before this leaves an empty store without a marker, which is a fresh start.
		if err := writeIdentity(cfg); err != nil {
			return nil, cluster.ErrStoreFailed.Wrap(err, "write the marks in %s", cfg.IdentityDir)
		}
	}
	return openForWriting(cfg, path, &store{snapshots: snapshots, high: high, found: found})
}

// writeIdentity writes what this node remembers outside the Raft directory, the marker last.
func writeIdentity(cfg Config) error {
	for _, dir := range []string{filepath.Dir(cfg.Dir), filepath.Dir(cfg.IdentityDir), cfg.Dir} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	if err := createHighWater(cfg.IdentityDir); err != nil {
		return err
	}
	if err := createTail(cfg.IdentityDir); err != nil {
		return err
	}
	return writeMarker(cfg.IdentityDir, cfg.Self, cfg.Now())
}

func openForWriting(cfg Config, path string, st *store) (_ *store, err error) {
	if st.log.tail, err = openTail(cfg.IdentityDir); err != nil {
		return nil, cluster.ErrStoreFailed.Wrap(err, "open the tail mark in %s", cfg.IdentityDir)
	}
	if st.bolt, err = openBolt(path, false); err != nil {
		return nil, errors.Join(err, st.log.tail.close())
	}
	st.log.LogStore = st.bolt
	if err := st.snapshots.removeUnfinished(); err != nil {
		return nil, errors.Join(cluster.ErrStoreFailed.Wrap(err, "remove unfinished snapshots in %s", cfg.Dir), st.close())
	}
	if st.stable, err = openStable(st.bolt); err != nil {
		return nil, errors.Join(storeError(cluster.ErrStoreCorrupt, err, "%s", path), st.close())
	}
	if st.stable.owner() == "" {
		if err := st.stable.Set([]byte(keyOwner), []byte(ownerOf(cfg.Self))); err != nil {
			return nil, errors.Join(cluster.ErrStoreFailed.Wrap(err, "%s", path), st.close())
		}
	}
	return st, nil
}

// createBolt makes an empty store under its final name as one durable step: bolt
// itself would leave a file of zeros when the power fails while it writes the first pages.
func createBolt(path string) error {
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	bolt, err := openBolt(tmp, false)
	if err != nil {
		return err
	}
	if err := bolt.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func storeExists(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.Size() > 0, nil
}

// inspect reads everything without writing anything.
func inspect(path string, exists bool, snapshots *snapshotStore, high mark, self cluster.Identity) (contents, error) {
	var c contents
	state, err := newestSnapshot(snapshots, &c)
	if err != nil {
		return c, err
	}
	if exists {
		if err := checkBoltFile(path); err != nil {
			return c, storeError(cluster.ErrStoreCorrupt, err, "%s", path)
		}
		bolt, err := openBolt(path, true)
		if err != nil {
			return c, err
		}
		err = guarded(path, func() error { return readLog(bolt, state, high.Applied, self, &c) })
		if err = errors.Join(err, bolt.Close()); err != nil {
			return c, err
		}
	}
	held := c.held()
	switch {
	case c.empty() && high != (mark{}):
		return c, cluster.ErrStoreEmptied.Wrap(nil, "%s holds nothing, though this node had reached term %d and entry %d", path, high.Term, high.Applied)
	case c.term < high.Term || held < high.Applied:
		return c, ErrStoreBackwards.Wrap(nil, "%s is at term %d, entry %d; this node had reached term %d, entry %d", path, c.term, held, high.Term, high.Applied)
	}
	c.state = state
	return c, nil
}

// newestSnapshot finds the newest snapshot that is whole, by restoring it. Each is
// judged alone: that one is damaged says nothing of the next.
func newestSnapshot(snapshots *snapshotStore, c *contents) (*fsm.State, error) {
	all, err := snapshots.all()
	if err != nil {
		return nil, storeError(cluster.ErrStoreCorrupt, err, "list the snapshots")
	}
	var damage error
	for _, found := range all {
		state, err := snapshots.restore(found)
		switch {
		case errors.Is(err, fsm.ErrIncompatible):
			return nil, cluster.ErrNewerBuild.Wrap(err, "a snapshot cannot be read by this build")
		case refusedByKernel(err):
			return nil, cluster.ErrStoreFailed.Wrap(err, "a snapshot cannot be read")
		case err != nil:
			damage = errors.Join(damage, err)
			continue
		}
		if damage != nil {
			snapshots.logger.Error("a snapshot is damaged; an older one and the log stand in for it",
				"code", cluster.ErrStoreCorrupt.Code, "error", damage, "used", found.meta.ID)
		}
		c.snapshot = found.meta
		c.configuration = &configuration{index: found.meta.ConfigurationIndex, suffrage: suffrageOf(found.meta.Configuration)}
		return state, nil
	}
	if damage != nil {
		return nil, cluster.ErrStoreCorrupt.Wrap(damage, "no snapshot can be read")
	}
	return fsm.NewState(), nil
}

// readLog reads every entry, and applies to state those that are known to be committed.
func readLog(bolt *raftboltdb.BoltStore, state *fsm.State, applied uint64, self cluster.Identity, c *contents) (err error) {
	stable, err := openStable(bolt)
	if err != nil {
		return err
	}
	if owner := stable.owner(); owner != "" && owner != ownerOf(self) {
		return cluster.ErrStoreForeign.Wrap(nil, "the log store was written by %s, this is %s", owner, ownerOf(self))
	}
	if c.term, err = stable.GetUint64([]byte(keyCurrentTerm)); err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	if c.first, err = bolt.FirstIndex(); err != nil {
		return err
	}
	if c.last, err = bolt.LastIndex(); err != nil || c.last == 0 {
		return err
	}
	from := uint64(1)
	if c.snapshot != nil {
		from = c.snapshot.Index + 1
	}
	if c.first > from {
		return fmt.Errorf("entries %d to %d are in neither log nor snapshot", from, c.first-1)
	}
	for i := c.first; i <= c.last; i++ {
		var entry raft.Log
		if err := (sealedLog{LogStore: bolt}).GetLog(i, &entry); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if i < from || i > applied {
			continue
		}
		switch entry.Type {
		case raft.LogConfiguration:
			c.configuration = &configuration{index: i, suffrage: suffrageOf(raft.DecodeConfiguration(entry.Data))}
		case raft.LogCommand:
			p, err := fsm.DecodeProposal(entry.Data)
			if err != nil {
				applied = 0 // the state machine meets the same entry and reports it
				continue
			}
			_, _ = state.Apply(entry.Index, entry.Term, p) // a rejection is deterministic and changes nothing
		}
	}
	return nil
}

// openBolt opens the log store: bounded wait for its lock, no free list on disk
// (bolt would rewrite all of it with every commit), fsync on.
func openBolt(path string, readOnly bool) (bolt *raftboltdb.BoltStore, err error) {
	err = guarded(path, func() (err error) {
		bolt, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{
			Timeout: storeLockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, ReadOnly: readOnly,
		}})
		return err
	})
	return bolt, err
}

// guarded runs f against a bolt file and turns what bolt does with damage (an
// error, a panic or a fault in the mapped file) into a typed refusal.
func guarded(path string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case interface{ Addr() uintptr }: // the disk does not give a page of the mapped file
			err = cluster.ErrStoreFailed.Wrap(fmt.Errorf("%v", r), "read %s", path)
		default:
			err = cluster.ErrStoreCorrupt.Wrap(fmt.Errorf("%v", r), "%s", path)
		}
	}()
	switch err = f(); {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return cluster.ErrStoreInUse.Wrap(nil, "%s is in use by another process", filepath.Dir(path))
	}
	return storeError(cluster.ErrStoreCorrupt, err, "%s", path)
}

// storeError types err, unless it is typed already. What the kernel refused says
// nothing of the data: it may be whole, and is not to be given up as damaged. Only a
// file that is missing is damage, as each is written before the one that states it.
func storeError(otherwise *cluster.Error, err error, format string, args ...any) error {
	var typed *cluster.Error
	if errors.As(err, &typed) {
		return err
	}
	if refusedByKernel(err) {
		otherwise = cluster.ErrStoreFailed
	}
	return otherwise.Wrap(err, format, args...)
}

// refusedByKernel reports whether the kernel refused what was asked of it; that a file is missing is an answer.
// err is of one file: of several errors joined, the first decides.
func refusedByKernel(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}
