// The identity marker and the high-water mark: what this node remembers outside the Raft directory, so that an emptied or
// older log store is noticed (§169, §172).

package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
)

const (
	markerFile = "raft-marker.json"
	markFile   = "raft-high-water.json"
)

// marker says whose log store this is. It is written once, after the store was created.
type marker struct {
	Cluster fsm.ClusterID `json:"cluster_id"`
	Node    fsm.NodeID    `json:"node_id"`
	Created time.Time     `json:"created"`
}

// mark is what the log store certainly held at some time: it never states more than is on disk.
type mark struct {
	Term    uint64 `json:"term"`
	Applied uint64 `json:"applied_index"`
}

// readMarker returns false when this node has no marker yet.
func readMarker(dir string) (marker, bool, error) {
	var m marker
	ok, err := readJSON(filepath.Join(dir, markerFile), &m)
	return m, ok, err
}

func writeMarker(dir string, self cluster.Identity, now time.Time) error {
	return writeJSON(filepath.Join(dir, markerFile), marker{Cluster: self.Cluster, Node: self.Node, Created: now.UTC()})
}

// highWater keeps the mark on disk. Raising the term is durable at once (it
// guards against voting twice); the applied index follows in memory and is
// written by flush. What is applied never waits for the disk: mu is not held over
// a write.
type highWater struct {
	path  string
	there bool // there was a file

	turn    chan struct{} // holds a value while somebody writes; capacity 1
	writing func()        // called before a write; a test's way to have the disk hang

	mu      sync.Mutex
	current mark
	written mark // changed by whose turn it is
}

// createHighWater writes the mark of an empty log store; an existing one stays.
func createHighWater(dir string) error {
	path := filepath.Join(dir, markFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeJSON(path, mark{})
}

func openHighWater(dir string) (*highWater, error) {
	h := &highWater{path: filepath.Join(dir, markFile), turn: make(chan struct{}, 1), writing: func() {}}
	var err error
	if h.there, err = readJSON(h.path, &h.written); err != nil {
		return nil, err
	}
	h.current = h.written
	return h, nil
}

func (h *highWater) load() mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

func (h *highWater) raiseTerm(term uint64) error {
	h.mu.Lock()
	h.current.Term = max(h.current.Term, term)
	durable := term <= h.written.Term
	h.mu.Unlock()
	if durable {
		return nil
	}
	return h.flush()
}

func (h *highWater) raiseApplied(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current.Applied = max(h.current.Applied, index)
}

// flush writes the mark as it is once the writes before have ended.
func (h *highWater) flush() error {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.mu.Lock()
	next, was := h.current, h.written
	h.mu.Unlock()
	if next == was {
		return nil
	}
	h.writing()
	if err := writeJSON(h.path, next); err != nil {
		return fmt.Errorf("high-water mark: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = next
	return nil
}

// readJSON returns false when the file does not exist. Its second line is the checksum of the first.
func readJSON(path string, into any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, sealed, err := seal.Open(b)
	if err != nil || !sealed {
		return false, fmt.Errorf("%s: %w", path, errUnsealed)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return replaceFile(path, seal.Add(text))
}

// replaceFile replaces a file as one durable step: a crash leaves the old or the new one, whole.
func replaceFile(path string, content []byte) (err error) {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes what was created, renamed and removed in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
