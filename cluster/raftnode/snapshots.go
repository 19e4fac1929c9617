// The snapshot store: the library's file store, with a seal for what its checksum leaves out, directories made durable, a
// limit, and nothing left behind by a disk that failed.

package raftnode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/fsm"
)

// The file store's layout, and the file that this one adds to each snapshot.
const (
	snapshotsDir       = "snapshots"
	unfinishedSnapshot = ".tmp"
	sealFile           = "seal"
)

var errSnapshotTooLarge = errors.New("snapshot exceeds the limit")

// snapshotStore passes on to the file store. That one checks the state's bytes
// only: index, term and voters of a snapshot would be believed whatever they say.
type snapshotStore struct {
	*raft.FileSnapshotStore
	dir    string
	logger *slog.Logger
	// completed is called with the configuration of each snapshot once it is
	// complete: after an installed one the library's StoreConfiguration hook stays silent.
	completed func(index uint64, c raft.Configuration)
	sealing   func() error // called before a snapshot is sealed; a test's way to have the disk fail
}

func openSnapshots(dir string, logger *slog.Logger) (*snapshotStore, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, newLogBridge(logger))
	if err != nil {
		return nil, err
	}
	return &snapshotStore{FileSnapshotStore: files, dir: filepath.Join(dir, snapshotsDir), logger: logger, completed: func(uint64, raft.Configuration) {}, sealing: func() error { return nil }}, nil
}

// whole lists the snapshots whose description is unharmed, newest first, and what is wrong with the others.
func (s *snapshotStore) whole() (list []*raft.SnapshotMeta, damage, err error) {
	all, err := s.FileSnapshotStore.List()
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	unread := map[string]bool{} // the file store leaves out what it cannot read
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), unfinishedSnapshot) {
			unread[e.Name()] = true
		}
	}
	for _, meta := range all {
		delete(unread, meta.ID)
		if err := s.checkSeal(meta); err != nil {
			damage = errors.Join(damage, err)
			continue
		}
		list = append(list, meta)
	}
	if len(all) < snapshotsKept { // else they are those that await their removal
		for id := range unread {
			damage = errors.Join(damage, fmt.Errorf("snapshot %s cannot be read", id))
		}
	}
	return list, damage, nil
}

// List implements raft.SnapshotStore.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	list, _, err := s.whole()
	return list, err
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkSeal(meta); err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return meta, r, nil
}

func (s *snapshotStore) checkSeal(meta *raft.SnapshotMeta) error {
	dir := filepath.Join(s.dir, meta.ID)
	sealed, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", meta.ID, err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "state.bin"))
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", meta.ID, err)
	}
	sum := sha256.Sum256(state)
	want, err := snapshotSeal(*meta, sum[:])
	if err != nil || string(sealed) != want || meta.Size != int64(len(state)) {
		return errors.Join(fmt.Errorf("snapshot %s: %w", meta.ID, errUnsealed), err)
	}
	return nil
}

// snapshotSeal covers what the library reads of a snapshot, and its bytes.
func snapshotSeal(meta raft.SnapshotMeta, state []byte) (string, error) {
	b, err := json.Marshal(struct {
		Version       raft.SnapshotVersion
		ID            string
		Index, Term   uint64
		Configuration raft.Configuration
		ConfiguredAt  uint64
		State         []byte
	}{meta.Version, meta.ID, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, state})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]) + "\n", err
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, conf, confIndex, t)
	if err != nil {
		// It leaves what it had begun, once for each attempt on a full disk. Should
		// another one be under way, that fails with it and is made again.
		return nil, errors.Join(err, s.removeUnfinished())
	}
	return &snapshotSink{SnapshotSink: sink, store: s, sum: sha256.New(), meta: raft.SnapshotMeta{
		Version: version, ID: sink.ID(), Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}}, nil
}

// removeUnfinished removes the snapshots that a crash or a failed write left behind.
func (s *snapshotStore) removeUnfinished() error {
	left, err := filepath.Glob(filepath.Join(s.dir, "*"+unfinishedSnapshot))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

type snapshotSink struct {
	raft.SnapshotSink
	store *snapshotStore
	meta  raft.SnapshotMeta
	sum   hash.Hash
	size  int
	done  bool
}

func (s *snapshotSink) Write(b []byte) (int, error) {
	if s.size += len(b); s.size > fsm.MaxSnapshot {
		return 0, fmt.Errorf("%w of %d bytes", errSnapshotTooLarge, fsm.MaxSnapshot)
	}
	s.sum.Write(b)
	return s.SnapshotSink.Write(b)
}

// Close completes the snapshot: seal and directory first, as the file store moves
// the directory into place without syncing what is in it. Both the state machine
// and the library close it; the second time does nothing.
func (s *snapshotSink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	dir := filepath.Join(s.store.dir, s.meta.ID+unfinishedSnapshot)
	seal, err := snapshotSeal(s.meta, s.sum.Sum(nil))
	if err == nil {
		err = s.store.sealing()
	}
	if err == nil {
		err = replaceFile(filepath.Join(dir, sealFile), []byte(seal))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("snapshot %s: %w", s.meta.ID, err), s.Cancel())
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return errors.Join(err, s.discard(dir))
	}
	s.store.completed(s.meta.ConfigurationIndex, s.meta.Configuration)
	return nil
}

// Cancel discards the snapshot; the file store keeps it when its disk fails.
func (s *snapshotSink) Cancel() error {
	s.done = true
	return errors.Join(s.SnapshotSink.Cancel(), s.discard(filepath.Join(s.store.dir, s.meta.ID+unfinishedSnapshot)))
}

func (s *snapshotSink) discard(dir string) error {
	if err := os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readSnapshot decodes at most the permitted size.
func readSnapshot(r io.Reader) (*fsm.State, error) {
	b, err := io.ReadAll(io.LimitReader(r, fsm.MaxSnapshot+1))
	if err != nil {
		return nil, err
	}
	if len(b) > fsm.MaxSnapshot {
		return nil, fmt.Errorf("%w of %d bytes", errSnapshotTooLarge, fsm.MaxSnapshot)
	}
	return fsm.DecodeSnapshot(b)
}
