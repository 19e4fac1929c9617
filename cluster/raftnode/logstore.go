// Observes the log store: since when a write is outstanding, how much was written, which term was made durable, and what failed.

package raftnode

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/hashicorp/raft"
)

// logStore passes on to a raft.LogStore. Bolt's panics become errors, because a
// panic on one of the library's goroutines cannot be contained any more.
type logStore struct {
	raft.LogStore
	now    func() time.Time
	broken func(error) // a read failed: the log is damaged under the running node
	failed func(error) // a write failed: the library steps down and goes on

	wrote func([]*raft.Log)

	logWrite, stableWrite timer
}

func (s *logStore) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

func (s *logStore) StoreLogs(entries []*raft.Log) error {
	s.logWrite.start(s.now())
	defer s.logWrite.stop()
	err := guarded(storeFile, func() error { return s.LogStore.StoreLogs(entries) })
	if err != nil {
		s.failed(err)
		return err
	}
	s.wrote(entries)
	return nil
}

func (s *logStore) GetLog(index uint64, entry *raft.Log) error {
	err := guarded(storeFile, func() error {
		err := s.LogStore.GetLog(index, entry)
		if errors.Is(err, raft.ErrLogNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		s.broken(err)
		return err
	}
	if entry.Index != index {
		return raft.ErrLogNotFound
	}
	return nil
}

func (s *logStore) DeleteRange(low, high uint64) error {
	return guarded(storeFile, func() error { return s.LogStore.DeleteRange(low, high) })
}

// stableStore keeps term and vote. It raises the high-water mark with every
// durable term: after the store, so that the mark never states more than the
// store holds.
//
// The library panics when it cannot save a term or a vote, so a failing disk is
// retried here: meanwhile this node neither votes nor leads, and the watchdog
// counts the time like that of a hung log write.
type stableStore struct {
	raft.StableStore
	high *highWater
	log  *logStore
	stop context.Context
}

const stableRetry = 100 * time.Millisecond

func (s stableStore) Set(key, value []byte) error {
	return s.persist(func() error { return s.StableStore.Set(key, value) })
}

func (s stableStore) SetUint64(key []byte, value uint64) error {
	return s.persist(func() error {
		if err := s.StableStore.SetUint64(key, value); err != nil {
			return err
		}
		if string(key) == keyCurrentTerm {
			return s.high.raiseTerm(value)
		}
		return nil
	})
}

func (s stableStore) persist(write func() error) error {
	s.log.stableWrite.start(s.log.now())
	defer s.log.stableWrite.stop()
	for {
		err := guarded(storeFile, write)
		if err == nil {
			return nil
		}
		s.log.failed(err)
		select {
		case <-time.After(stableRetry):
		case <-s.stop.Done():
			// Neither answer is right: an error panics, and success would be a vote nobody remembers.
			runtime.Goexit()
		}
	}
}
