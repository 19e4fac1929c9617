// The snapshot store: the library's file store, with a seal for what its checksum leaves out, directories made durable, a
// limit, and nothing left behind by a disk that failed.

package raftnode

import (
	"cmp"
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
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/fsm"
)

// The file store's layout, and the file that this one adds to each snapshot.
const (
	snapshotsDir       = "snapshots"
	unfinishedSnapshot = ".tmp"
	metaFile           = "meta.json"
	stateFile          = "state.bin"
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

// whole lists the snapshots that are not known to be damaged, newest first, and
// what is wrong with the others. One that the disk does not give may be whole: it
// stays in the list, so that none older is taken for it, and is the error when it
// is the newest. Each is judged alone: damage of one says nothing of another.
func (s *snapshotStore) whole() (list []*raft.SnapshotMeta, damage, err error) {
	all, err := s.FileSnapshotStore.List()
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	refused := map[string]error{}
	listed := map[string]bool{}
	for _, meta := range all {
		listed[meta.ID] = true
		switch err := s.checkSeal(meta); {
		case err == nil:
			list = append(list, meta)
		case refusedByKernel(err):
			list, refused[meta.ID] = append(list, meta), err
		default:
			damage = errors.Join(damage, err)
		}
	}
	for _, e := range entries { // the file store leaves out what it cannot read
		id := e.Name()
		if !e.IsDir() || strings.HasSuffix(id, unfinishedSnapshot) || listed[id] {
			continue
		}
		if _, err := os.ReadFile(filepath.Join(s.dir, id, metaFile)); refusedByKernel(err) {
			list, refused[id] = append(list, named(id)), fmt.Errorf("snapshot %s: %w", id, err)
		} else if len(all) < snapshotsKept { // else it awaits its removal
			damage = errors.Join(damage, fmt.Errorf("snapshot %s cannot be read", id))
		}
	}
	slices.SortFunc(list, func(a, b *raft.SnapshotMeta) int { // as the file store does
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index), cmp.Compare(b.ID, a.ID))
	})
	if len(list) > 0 {
		err = refused[list[0].ID]
	}
	return list, damage, err
}

// named is what the name that the file store gave a snapshot says of it.
func named(id string) *raft.SnapshotMeta {
	meta := &raft.SnapshotMeta{ID: id}
	_, _ = fmt.Sscanf(id, "%d-%d-", &meta.Term, &meta.Index) // another name sorts last
	return meta
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
	state, err := os.ReadFile(filepath.Join(dir, stateFile))
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

// restore decodes the state of one snapshot.
func (s *snapshotStore) restore(id string) (*fsm.State, error) {
	_, r, err := s.Open(id)
	if err != nil {
		return nil, err
	}
	state, err := readSnapshot(r)
	return state, errors.Join(err, r.Close())
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
