// Times what is written beside the appends: snapshots, the log that they take the place of, and the high-water mark. The library
// does the first two on its own loop when a snapshot is installed, so that a disk which hangs there holds everything up.

package raftnode

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// several is the timer of operations that may be under way together: it shows the oldest.
type several struct {
	timer
	mu    sync.Mutex
	under []*time.Time
}

// start returns how to end the operation.
func (s *several) start(now time.Time) (stop func()) {
	op := &now
	s.change(func() { s.under = append(s.under, op) })
	return func() {
		s.change(func() { s.under = slices.DeleteFunc(s.under, func(t *time.Time) bool { return t == op }) })
	}
}

func (s *several) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	if len(s.under) == 0 {
		s.stop()
		return
	}
	s.since.Store(s.under[0])
}

// watchedSnapshots passes on to a snapshot store.
type watchedSnapshots struct {
	raft.SnapshotStore
	log *logStore
}

func (s watchedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	defer s.log.otherWrites.start(s.log.now())()
	sink, err := s.SnapshotStore.Create(version, index, term, conf, confIndex, t)
	if err != nil {
		return nil, err
	}
	return watchedSink{sink, s.log}, nil
}

type watchedSink struct {
	raft.SnapshotSink
	log *logStore
}

func (s watchedSink) Write(b []byte) (int, error) {
	defer s.log.otherWrites.start(s.log.now())()
	return s.SnapshotSink.Write(b)
}

func (s watchedSink) Close() error {
	defer s.log.otherWrites.start(s.log.now())()
	return s.SnapshotSink.Close()
}

func (s watchedSink) Cancel() error {
	defer s.log.otherWrites.start(s.log.now())()
	return s.SnapshotSink.Cancel()
}
