// Spool: an attempt's log on the agent's own disk, until a daemon has stored it.
//
// A job writes against this file alone. It is never held up by a daemon, the
// network or the artifact store; what exceeds the limit, or does not fit on the
// disk, is read and dropped.

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	logDir    = "logs"
	logSuffix = ".log"
)

// spool is safe for concurrent use by one writer and one reader.
type spool struct {
	path  string
	limit int64
	grew  chan struct{} // there is more to send, or the end

	mu    sync.Mutex
	f     *os.File
	size  int64 // bytes written
	full  bool  // the limit was reached, or the disk refused; the rest is dropped
	ended bool  // nothing more will be written
}

func spoolPath(dir, lease string) string { return filepath.Join(dir, logDir, lease+logSuffix) }

// newSpool begins an attempt's log.
func newSpool(dir, lease string, limit int64) (*spool, error) {
	if limit <= 0 {
		limit = DefaultLogLimit
	}
	path := spoolPath(dir, lease)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	return &spool{path: path, limit: limit, grew: make(chan struct{}, 1), f: f}, nil
}

// leftSpools opens the logs that an earlier process of this agent did not bring
// away, by lease. They have ended.
func leftSpools(dir string) (map[string]*spool, error) {
	held, err := os.ReadDir(filepath.Join(dir, logDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	left := map[string]*spool{}
	for _, e := range held {
		lease, ok := strings.CutSuffix(e.Name(), logSuffix)
		if !ok {
			continue
		}
		path := filepath.Join(dir, logDir, e.Name())
		f, err := os.Open(path)
		if err != nil {
			return left, fmt.Errorf("log: %w", err)
		}
		info, err := f.Stat()
		if err != nil {
			return left, errors.Join(fmt.Errorf("log: %w", err), f.Close())
		}
		left[lease] = &spool{path: path, grew: make(chan struct{}, 1), f: f, size: info.Size(), full: true, ended: true}
	}
	return left, nil
}

// Write never fails and never takes less.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if s.full || s.ended {
		return n, nil
	}
	if room := s.limit - s.size; int64(len(p)) > room {
		p = p[:room]
		s.full = true
	}
	s.put(p)
	if s.full {
		s.put([]byte(fmt.Sprintf("\n== the log ends here: it is limited to %d bytes, the rest of the output was dropped\n", s.limit)))
	}
	s.signal()
	return n, nil
}

// put appends; on a disk that refuses the log ends.
func (s *spool) put(p []byte) {
	n, err := s.f.Write(p)
	s.size += int64(n)
	if err != nil {
		s.full = true
	}
}

// end says that nothing more will be written, and tells the length.
func (s *spool) end() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
	return s.size
}

func (s *spool) signal() {
	select {
	case s.grew <- struct{}{}:
	default:
	}
}

// state tells how long the log is and whether it has ended.
func (s *spool) state() (size int64, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size, s.ended
}

// read fills p from an offset below the log's length.
func (s *spool) read(p []byte, at int64) error {
	_, err := s.f.ReadAt(p, at)
	return err
}

// close gives the file back; remove also deletes it.
func (s *spool) close() error { return s.f.Close() }

func (s *spool) remove() error { return errors.Join(s.f.Close(), os.Remove(s.path)) }
