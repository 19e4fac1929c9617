// The tail mark: the index of the newest entry, kept outside the bolt file, so that a log that lost its end is noticed (§172).

package raftnode

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

const (
	tailFile   = "raft-tail"
	tailFormat = "%020d %08x\n" // less than a disk sector, so it is written whole or not at all
)

// tailMark never states more than the log certainly holds: it is written after
// the entries are durable and lowered, durably, before any newest one is deleted.
// Following the log costs no sync: what a power cut takes is an older mark again.
type tailMark struct {
	file *os.File

	mu   sync.Mutex
	last uint64
}

func tailPath(dir string) string { return filepath.Join(dir, tailFile) }

// createTail writes the mark of an empty log; an existing one stays.
func createTail(dir string) error {
	if _, err := os.Stat(tailPath(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replaceFile(tailPath(dir), tailText(0))
}

func tailText(last uint64) []byte {
	digits := fmt.Sprintf("%020d", last)
	return fmt.Appendf(nil, tailFormat, last, crc32.Checksum([]byte(digits), castagnoli))
}

// readTail returns the mark that is in the file.
func readTail(dir string) (last uint64, err error) {
	b, err := os.ReadFile(tailPath(dir))
	if err != nil {
		return 0, err
	}
	var sum uint32
	if _, err := fmt.Sscanf(string(b), tailFormat, &last, &sum); err != nil || string(b) != string(tailText(last)) {
		return 0, fmt.Errorf("%s: %w", tailFile, errUnsealed)
	}
	return last, nil
}

// openTail opens the mark for writing.
func openTail(dir string) (*tailMark, error) {
	last, err := readTail(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(tailPath(dir), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return &tailMark{file: f, last: last}, nil
}

func (t *tailMark) load() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// follow notes that the entry at last is durable.
func (t *tailMark) follow(last uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writeLocked(last)
}

// lower notes durably that nothing after last can be relied on any more.
func (t *tailMark) lower(last uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.writeLocked(last); err != nil {
		return err
	}
	return t.file.Sync()
}

func (t *tailMark) writeLocked(last uint64) error {
	if _, err := t.file.WriteAt(tailText(last), 0); err != nil {
		return fmt.Errorf("tail mark: %w", err)
	}
	t.last = last
	return nil
}

func (t *tailMark) close() error { return t.file.Close() }
