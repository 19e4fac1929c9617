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
// written by flush.
type highWater struct {
	path string

	mu      sync.Mutex
	current mark
	written mark
}

func openHighWater(dir string) (*highWater, error) {
	h := &highWater{path: filepath.Join(dir, markFile)}
	if _, err := readJSON(h.path, &h.written); err != nil {
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
	defer h.mu.Unlock()
	if term <= h.current.Term {
		return nil
	}
	h.current.Term = term
	return h.flushLocked()
}

func (h *highWater) raiseApplied(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current.Applied = max(h.current.Applied, index)
}

func (h *highWater) flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flushLocked()
}

func (h *highWater) flushLocked() error {
	if h.current == h.written {
		return nil
	}
	if err := writeJSON(h.path, h.current); err != nil {
		return fmt.Errorf("high-water mark: %w", err)
	}
	h.written = h.current
	return nil
}

func readJSON(path string, into any) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// writeJSON replaces a file as one durable step: a crash leaves the old or the new one, whole.
func writeJSON(path string, value any) (err error) {
	b, err := json.Marshal(value)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
