// Compares the coordination state of all replicas, entry by entry.

package seeds

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// replicas collects what every incarnation says of its state after each entry.
type replicas struct {
	mu      sync.Mutex
	entries map[uint64]*state
	last    map[string]uint64 // process → the entry it reached
	differ  []string
}

// state is the state after an entry, as the first replica told it.
type state struct {
	hash  [32]byte
	first string
	heard []string // which processes told the same
}

func newReplicas() *replicas {
	return &replicas{entries: map[uint64]*state{}, last: map[string]uint64{}}
}

// heard notes one replica's state; process names the incarnation.
func (r *replicas) heard(process string, index uint64, hash [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[process] = max(r.last[process], index)
	known := r.entries[index]
	switch {
	case known == nil:
		r.entries[index] = &state{hash: hash, first: process, heard: []string{process}}
	case known.hash != hash:
		r.differ = append(r.differ, fmt.Sprintf("after entry %d: %s has %x, %s had %x", index, process, hash[:6], known.first, known.hash[:6]))
	case !slices.Contains(known.heard, process):
		known.heard = append(known.heard, process)
	}
}

// story is every entry's state and who told it, and last what differs.
func (r *replicas) story() (lines []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, index := range slices.Sorted(maps.Keys(r.entries)) {
		s := r.entries[index]
		lines = append(lines, struct {
			Entry uint64   `json:"entry"`
			Hash  string   `json:"hash"`
			Told  []string `json:"told"`
		}{index, fmt.Sprintf("%x", s.hash), s.heard})
	}
	for _, d := range r.differ {
		lines = append(lines, d)
	}
	return lines
}

// reached is the newest entry that a process has applied.
func (r *replicas) reached(process string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[process]
}

// verdict returns how many entries more than one process has told of, and what differs.
func (r *replicas) verdict() (compared int, differ []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.entries {
		if len(s.heard) > 1 {
			compared++
		}
	}
	return compared, slices.Clone(r.differ)
}
