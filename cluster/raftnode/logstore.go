// Observes the log store: since when a write is outstanding, how much was written, which term was made durable, and what failed.

package raftnode

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// logStore passes on to a raft.LogStore. Bolt's panics become errors, because a
// panic on one of the library's goroutines cannot be contained any more.
type logStore struct {
	raft.LogStore
	now    func() time.Time
	broken func(error) // a read failed: the log is damaged under the running node
	failed func(error) // a write failed: the library steps down

	// dead: a write failed in a way that leaves unknown what is on the disk. A sync
	// that is tried again succeeds over data that the first one lost, so nothing is
	// written any more.
	dead atomic.Bool

	wrote func([]*raft.Log)

	logWrite, stableWrite timer
	otherWrites           several // deletions, snapshots, the high-water mark
}

func (s *logStore) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

func (s *logStore) StoreLogs(entries []*raft.Log) error {
	s.logWrite.start(s.now())
	defer s.logWrite.stop()
	if err := s.write(func() error { return s.LogStore.StoreLogs(entries) }); err != nil {
		return err
	}
	s.wrote(entries)
	return nil
}

// write runs one write of log, term or vote.
func (s *logStore) write(do func() error) error {
	if s.dead.Load() {
		return errStoreDead
	}
	err := guarded(storeFile, do)
	if err != nil {
		if !spaceMayReturn(err) {
			s.dead.Store(true)
		}
		s.failed(err)
	}
	return err
}

var errStoreDead = errors.New("the log store failed before; nothing is written any more")

// spaceMayReturn reports whether the disk was full before anything was synced:
// the write was undone, and succeeds once there is room again.
func spaceMayReturn(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
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
	defer s.otherWrites.start(s.now())()
	return s.write(func() error { return s.LogStore.DeleteRange(low, high) })
}

// stableStore keeps term and vote. It raises the high-water mark with every
// durable term: after the store, so that the mark never states more than the
// store holds.
//
// The library panics when it cannot save a term or a vote, so a full disk is
// retried here, and after any other error nothing is answered any more: meanwhile
// this node neither votes nor leads, and the watchdog counts the time like that
// of a hung log write.
type stableStore struct {
	raft.StableStore
	high *highWater
	log  *logStore
	stop context.Context
	once bool // a failed write is an answer: nothing was promised yet
}

const stableRetry = 100 * time.Millisecond

func (s stableStore) Set(key, value []byte) error {
	return s.persist(func() error { return s.StableStore.Set(key, value) })
}

// SetUint64 writes what is not there already. The library begins by writing the
// term that it has read, when nobody watches the disk yet and who opens the store waits.
func (s stableStore) SetUint64(key []byte, value uint64) error {
	if was, err := s.GetUint64(key); was == value && (err == nil || errors.Is(err, raftboltdb.ErrKeyNotFound)) {
		if string(key) == keyCurrentTerm {
			_ = s.high.raiseTerm(value) // a crash may have kept the mark below; markLoop writes it again
		}
		return nil
	}
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
		err := s.log.write(write)
		if err == nil || s.once {
			return err
		}
		select {
		case <-time.After(stableRetry):
		case <-s.stop.Done():
			// Neither answer is right: an error panics, and success would be a vote nobody remembers.
			runtime.Goexit()
		}
	}
}
