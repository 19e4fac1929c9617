// Watches the snapshot store: which configuration index a snapshot carries, and that none exceeds the limit.

package raftnode

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/forgeyard/forgeyard/fsm"
)

var errSnapshotTooLarge = errors.New("snapshot exceeds the limit")

// snapshotStore passes on to the file store. completed is called with the
// configuration of each snapshot once it is complete: after an installed
// snapshot the library's StoreConfiguration hook stays silent.
type snapshotStore struct {
	raft.SnapshotStore
	completed func(index uint64, c raft.Configuration)
}

func (s snapshotStore) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, conf, confIndex, t)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, complete: func() { s.completed(confIndex, conf) }}, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	complete func()
	size     int
}

func (s *snapshotSink) Write(b []byte) (int, error) {
	if s.size += len(b); s.size > fsm.MaxSnapshot {
		return 0, fmt.Errorf("%w of %d bytes", errSnapshotTooLarge, fsm.MaxSnapshot)
	}
	return s.SnapshotSink.Write(b)
}

func (s *snapshotSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	s.complete()
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
