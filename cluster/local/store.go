// The durable state of a standalone node: one checksummed file, replaced as a whole.

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// The files of the directory. The lock file also marks that a state was written
// once: an emptied directory must not pass for a new one.
const (
	stateFile = "state"
	tempFile  = "state.tmp"
	lockFile  = "lock"
)

// store keeps the state of one process in a locked directory. A nil store keeps nothing.
type store struct {
	dir    string
	lock   *os.File
	marked bool
}

// openStore locks the directory and reads its state; a new directory gives a new state.
func openStore(dir string) (*store, *fsm.State, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, cluster.ErrStoreFailed.Wrap(err, "")
	}
	s := &store{dir: dir}
	if err := s.acquire(); err != nil {
		return nil, nil, err
	}
	state, err := s.load()
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	return s, state, nil
}

// acquire takes the lock of the directory; the kernel frees it when the process ends.
func (s *store) acquire() error {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return cluster.ErrStoreFailed.Wrap(err, "")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return cluster.ErrStoreInUse.Wrap(nil, "the data directory %s is in use", s.dir)
		}
		return cluster.ErrStoreFailed.Wrap(err, "")
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return cluster.ErrStoreFailed.Wrap(err, "")
	}
	s.lock, s.marked = f, info.Size() > 0
	return nil
}

func (s *store) load() (*fsm.State, error) {
	path := filepath.Join(s.dir, stateFile)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.marked:
		return nil, cluster.ErrStoreEmptied.Wrap(nil, "%s is missing, though this directory has held a state", path)
	case errors.Is(err, fs.ErrNotExist):
		return fsm.NewState(), nil
	case err != nil:
		return nil, cluster.ErrStoreFailed.Wrap(err, "")
	}
	state, err := fsm.DecodeSnapshot(data)
	switch {
	case errors.Is(err, fsm.ErrIncompatible):
		return nil, cluster.ErrNewerBuild.Wrap(err, "a newer build wrote %s", path)
	case err != nil:
		return nil, cluster.ErrStoreCorrupt.Wrap(err, "the coordination state %s is damaged", path)
	}
	return state, nil
}

// save replaces the state. After it returned nil the state survives a crash;
// after an error the file holds the old or the new state, never a part of one.
func (s *store) save(state *fsm.State) error {
	if s == nil {
		return nil
	}
	data, err := state.EncodeSnapshot()
	if err != nil {
		return err
	}
	temp := filepath.Join(s.dir, tempFile)
	if err := writeSynced(temp, data); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(s.dir, stateFile)); err != nil {
		return err
	}
	if err := s.mark(); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// mark notes, once, that the directory holds a state.
func (s *store) mark() error {
	if s.marked {
		return nil
	}
	if _, err := s.lock.WriteString("forgeyard\n"); err != nil {
		return err
	}
	s.marked = true
	return s.lock.Sync()
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *store) close() error {
	if s == nil {
		return nil
	}
	if err := s.lock.Close(); err != nil {
		return fmt.Errorf("free the data directory: %w", err)
	}
	return nil
}
