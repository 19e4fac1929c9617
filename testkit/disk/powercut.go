// Rebuilds what a disk may hold after the power fails: what was synced, and nothing, a part or the pieces of what was not.

package disk

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Loss is what becomes of operations that no sync followed.
type Loss uint8

// The kinds of loss.
const (
	Drop  Loss = iota // none of them is on the disk
	Cut               // of each file's and each directory's, the first few are
	Tear              // of each write any sectors are, in any combination; of each directory's operations, the first few
	Kinds             // how many kinds there are
)

func (l Loss) String() string { return [...]string{"drop", "cut", "tear"}[l] }

// sector is the unit that a disk writes whole.
const sector = 512

// PowerCut writes below to what the disk holds when the power fails after the
// events. It returns how many operations were lost, in whole or in part. Names
// are durable once their directory was synced, as POSIX says; a file's own sync is not enough.
func PowerCut(to string, events []Event, loss Loss, rng *rand.Rand) (lost int, err error) {
	root := newDirectory()
	for _, e := range events {
		if err := root.apply(e); err != nil {
			return 0, err
		}
	}
	c := powerCut{loss: loss, rng: rng}
	err = c.write(to, root)
	return c.lost, err
}

// node is a file or a directory.
type node struct {
	entries, durable map[string]*node // directories only
	pending          []change         // of names, since the last sync
	content          []byte
	writes           []Event // of content, since the last sync
}

// change is one to a directory; nil: the name goes. A rename within one directory is one change of two names.
type change map[string]*node

func newDirectory() *node { return &node{entries: map[string]*node{}, durable: map[string]*node{}} }

func (n *node) find(path string) (*node, error) {
	if path == "." {
		return n, nil
	}
	for _, name := range strings.Split(path, string(filepath.Separator)) {
		if n = n.entries[name]; n == nil {
			return nil, fmt.Errorf("the record has no %s", path)
		}
	}
	return n, nil
}

// alter changes names in the directory of a path.
func (n *node) alter(path string, to *node) error {
	dir, err := n.find(filepath.Dir(path))
	if err != nil {
		return err
	}
	dir.change(change{filepath.Base(path): to})
	return nil
}

func (n *node) change(c change) {
	n.pending = append(n.pending, c)
	apply(n.entries, c)
}

func apply(entries map[string]*node, c change) {
	for name, to := range c {
		if to == nil {
			delete(entries, name)
		} else {
			entries[name] = to
		}
	}
}

func (n *node) apply(e Event) error {
	if e.Errno != 0 {
		return n.refused(e)
	}
	switch e.Op {
	case Create:
		return n.alter(e.Path, &node{})
	case Mkdir:
		return n.alter(e.Path, newDirectory())
	case Remove:
		return n.alter(e.Path, nil)
	}
	target, err := n.find(e.Path)
	if err != nil {
		return err
	}
	switch e.Op {
	case Write, Truncate:
		target.writes = append(target.writes, e)
	case Sync:
		for _, w := range target.writes {
			target.content = written(target.content, w)
		}
		target.writes, target.pending, target.durable = nil, nil, maps.Clone(target.entries)
	case Rename:
		if filepath.Dir(e.Path) != filepath.Dir(e.To) {
			return fmt.Errorf("%s: from one directory to another", e)
		}
		dir, err := n.find(filepath.Dir(e.Path))
		if err != nil {
			return err
		}
		dir.change(change{filepath.Base(e.Path): nil, filepath.Base(e.To): target})
	}
	return nil
}

// refused: a sync that failed has lost what it was to write, and a later one that
// succeeds does not bring it back; that is what kernels do.
func (n *node) refused(e Event) error {
	if e.Op != Sync {
		return nil
	}
	target, err := n.find(e.Path)
	if err != nil {
		return err
	}
	target.writes = nil
	return nil
}

// written returns the content after a write or a truncation, which changes it in place.
func written(content []byte, e Event) []byte {
	end := int(e.At) + len(e.Data)
	if e.Op == Truncate && end < len(content) {
		return content[:end]
	}
	if end > len(content) {
		content = append(content, make([]byte, end-len(content))...)
	}
	copy(content[e.At:], e.Data)
	return content
}

// powerCut writes what is left.
type powerCut struct {
	loss Loss
	rng  *rand.Rand
	lost int
}

// kept draws how many of n operations survive.
func (c *powerCut) kept(n int) int {
	k := 0
	if c.loss != Drop {
		k = c.rng.IntN(n + 1)
	}
	c.lost += n - k
	return k
}

func (c *powerCut) write(path string, n *node) error {
	if n.entries == nil {
		return os.WriteFile(path, c.content(n), 0o600)
	}
	entries := maps.Clone(n.durable)
	for _, change := range n.pending[:c.kept(len(n.pending))] {
		apply(entries, change)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // sorted: the draws must not depend on the map
		if err := c.write(filepath.Join(path, name), entries[name]); err != nil {
			return err
		}
	}
	return nil
}

func (c *powerCut) content(n *node) []byte {
	content := slices.Clone(n.content)
	if c.loss != Tear {
		for _, w := range n.writes[:c.kept(len(n.writes))] {
			content = written(content, w)
		}
		return content
	}
	for _, w := range n.writes {
		content = c.tear(content, w)
	}
	return content
}

// tear writes any of the sectors that a write touches.
func (c *powerCut) tear(content []byte, w Event) []byte {
	if w.Op == Truncate {
		if c.rng.IntN(2) == 0 {
			c.lost++
			return content
		}
		return written(content, w)
	}
	torn := false
	for at := int64(0); at < int64(len(w.Data)); {
		end := min((w.At+at)/sector*sector+sector-w.At, int64(len(w.Data)))
		if c.rng.IntN(2) == 0 {
			torn = true
		} else {
			content = written(content, Event{At: w.At + at, Data: w.Data[at:end]})
		}
		at = end
	}
	if torn {
		c.lost++
	}
	return content
}
