// The snapshot store: the library's file store, with a seal for what its checksum leaves out, directories made durable, a
// limit, and nothing left behind by a disk that failed.

package raftnode

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
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

var (
	errSnapshotTooLarge = errors.New("snapshot exceeds the limit")
	crcTable            = crc64.MakeTable(crc64.ECMA) // of the file store
)

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

// foundSnapshot is a snapshot on disk: whole, damaged, or refused by the disk, in
// which case it may be whole and no older one stands in for it.
type foundSnapshot struct {
	meta *raft.SnapshotMeta // unless whole: id, term and index alone
	err  error              // nil: whole
}

// all looks at every snapshot, newest first. The file store's own list leaves out
// what it cannot read, for whatever reason.
func (s *snapshotStore) all() (list []foundSnapshot, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), unfinishedSnapshot) {
			list = append(list, s.look(e.Name()))
		}
	}
	slices.SortFunc(list, func(a, b foundSnapshot) int { // as the file store does
		return cmp.Or(cmp.Compare(b.meta.Term, a.meta.Term), cmp.Compare(b.meta.Index, a.meta.Index), cmp.Compare(b.meta.ID, a.meta.ID))
	})
	return list, nil
}

func (s *snapshotStore) look(id string) foundSnapshot {
	var said struct { // as the file store writes it
		raft.SnapshotMeta
		CRC []byte
	}
	b, err := os.ReadFile(filepath.Join(s.dir, id, metaFile))
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(b)).Decode(&said)
	}
	if err == nil && (said.ID != id || said.Version > raft.SnapshotVersionMax) {
		err = errors.New("not described by its file")
	}
	var state []byte
	if err == nil {
		state, err = s.checkSeal(&said.SnapshotMeta)
	}
	// The seal leaves out the file store's own checksum, without which that does not open it.
	if err == nil && !bytes.Equal(said.CRC, binary.BigEndian.AppendUint64(nil, crc64.Checksum(state, crcTable))) {
		err = errUnsealed
	}
	if err == nil {
		return foundSnapshot{meta: &said.SnapshotMeta}
	}
	named := &raft.SnapshotMeta{ID: id}
	_, _ = fmt.Sscanf(id, "%d-%d-", &named.Term, &named.Index) // as the file store names it; another name sorts last
	return foundSnapshot{meta: named, err: fmt.Errorf("snapshot %s: %w", id, err)}
}

// newest is the newest snapshot that is not damaged, by id, term and index; nil when there is none.
func (s *snapshotStore) newest() (*raft.SnapshotMeta, error) {
	all, err := s.all()
	for _, found := range all {
		if found.err == nil || refusedByKernel(found.err) {
			return found.meta, nil
		}
	}
	return nil, err
}

// List implements raft.SnapshotStore: those that are whole, down to one that the disk refuses.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.all()
	var list []*raft.SnapshotMeta
	for _, found := range all {
		switch {
		case found.err == nil:
			list = append(list, found.meta)
		case refusedByKernel(found.err) && len(list) == 0:
			return nil, found.err
		case refusedByKernel(found.err):
			return list, nil
		}
	}
	return list, err
}

// Open implements raft.SnapshotStore.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	if _, err := s.checkSeal(meta); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("snapshot %s: %w", id, err), r.Close())
	}
	return meta, r, nil
}

// checkSeal returns the bytes of the state that the seal covers.
func (s *snapshotStore) checkSeal(meta *raft.SnapshotMeta) (state []byte, err error) {
	dir := filepath.Join(s.dir, meta.ID)
	sealed, err := os.ReadFile(filepath.Join(dir, sealFile))
	if err != nil {
		return nil, err
	}
	if state, err = os.ReadFile(filepath.Join(dir, stateFile)); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(state)
	want, err := snapshotSeal(*meta, sum[:])
	if err != nil || string(sealed) != want || meta.Size != int64(len(state)) {
		return nil, errors.Join(errUnsealed, err)
	}
	return state, nil
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

// restore decodes the state of a snapshot, or says what is wrong with it.
func (s *snapshotStore) restore(found foundSnapshot) (*fsm.State, error) {
	if found.err != nil {
		return nil, found.err
	}
	_, r, err := s.Open(found.meta.ID)
	if err != nil {
		return nil, err
	}
	state, err := readSnapshot(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", found.meta.ID, err)
	}
	return state, nil
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
