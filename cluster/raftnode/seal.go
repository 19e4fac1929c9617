// Checksums over what the bolt file holds: bolt has none for its data, and a vote or an entry that changed under a node must
// stop it (§172).

package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/forgeyard/forgeyard/cluster"
)

// sealSize is the size of a CRC-32C: it finds every change within 32 bits.
const sealSize = 4

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errUnsealed = errors.New("checksum mismatch")
)

// sealedLog adds a checksum to every entry it stores and verifies it at every
// read. What a checksum cannot tell, that the newest entries are gone, the tail mark does.
type sealedLog struct {
	raft.LogStore
	tail *tailMark
}

func (s sealedLog) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

func (s sealedLog) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	sealed := make([]*raft.Log, len(entries))
	for i, entry := range entries {
		c := *entry // the library and its other goroutines go on using theirs
		c.Extensions = binary.BigEndian.AppendUint32(append([]byte(nil), c.Extensions...), entrySum(entry))
		sealed[i] = &c
	}
	if err := s.LogStore.StoreLogs(sealed); err != nil {
		return err
	}
	return s.tail.follow(entries[len(entries)-1].Index)
}

func (s sealedLog) GetLog(index uint64, entry *raft.Log) error {
	if err := s.LogStore.GetLog(index, entry); err != nil {
		return err
	}
	return unsealEntry(index, entry)
}

// DeleteRange lowers the mark before the newest entries go, so that it never states more than the log holds.
func (s sealedLog) DeleteRange(low, high uint64) error {
	if last := s.tail.load(); low <= last && last <= high {
		first, err := s.FirstIndex()
		if err != nil {
			return err
		}
		left := uint64(0) // the whole log goes
		if first < low {
			left = low - 1
		}
		if err := s.tail.lower(left); err != nil {
			return err
		}
	}
	return s.LogStore.DeleteRange(low, high)
}

// unsealEntry verifies an entry read at index and takes its checksum off.
func unsealEntry(index uint64, entry *raft.Log) error {
	n := len(entry.Extensions) - sealSize
	if n < 0 {
		return fmt.Errorf("entry %d: %w", index, errUnsealed)
	}
	sum := binary.BigEndian.Uint32(entry.Extensions[n:])
	if entry.Extensions = entry.Extensions[:n:n]; n == 0 {
		entry.Extensions = nil
	}
	if entry.Index != index || sum != entrySum(entry) {
		return fmt.Errorf("entry %d: %w", index, errUnsealed)
	}
	return nil
}

// entrySum covers every field, each of variable length with its length.
func entrySum(entry *raft.Log) uint32 {
	b := make([]byte, 0, 64)
	for _, v := range []uint64{entry.Index, entry.Term, uint64(entry.Type), uint64(len(entry.Data)), uint64(len(entry.Extensions))} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if !entry.AppendedAt.IsZero() {
		b = binary.BigEndian.AppendUint64(b, uint64(entry.AppendedAt.UnixNano()))
	}
	sum := crc32.Update(0, castagnoli, b)
	return crc32.Update(crc32.Update(sum, castagnoli, entry.Data), castagnoli, entry.Extensions)
}

// keyStable is the one key under which sealedStable keeps everything.
const keyStable = "stable"

// keyOwner, inside that record, says whose votes these are: another node's store, put under this node's marker, has a term
// and entries that may pass every mark, but not this node's vote, so that this node could vote twice in one term.
const keyOwner = "Owner"

func ownerOf(self cluster.Identity) string {
	return fmt.Sprintf("node %s of cluster %s", self.Node, self.Cluster)
}

// sealedStable keeps term and vote as one record with a checksum. Under separate
// keys a lost vote would look like a vote never given.
type sealedStable struct {
	bolt *raftboltdb.BoltStore

	mu     sync.Mutex
	values map[string][]byte
}

// openStable reads the record; a store without one holds nothing yet.
func openStable(bolt *raftboltdb.BoltStore) (*sealedStable, error) {
	s := &sealedStable{bolt: bolt, values: map[string][]byte{}}
	b, err := bolt.Get([]byte(keyStable))
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if s.values, err = unsealStable(b); err != nil {
		return nil, fmt.Errorf("term and vote: %w", err)
	}
	return s, nil
}

func sealStable(values map[string][]byte) ([]byte, error) {
	b, err := cbor.Marshal(values)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli)), b...), nil
}

func unsealStable(b []byte) (values map[string][]byte, err error) {
	if len(b) < sealSize || binary.BigEndian.Uint32(b) != crc32.Checksum(b[sealSize:], castagnoli) {
		return nil, errUnsealed
	}
	if err := cbor.Unmarshal(b[sealSize:], &values); err != nil {
		return nil, err
	}
	if values == nil { // null, which takes no vote
		return nil, errors.New("no record")
	}
	return values, nil
}

// owner is empty in a store that was not opened for writing yet.
func (s *sealedStable) owner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.values[keyOwner])
}

// Set implements raft.StableStore. After an error the old value is answered, though the new one may be on disk.
func (s *sealedStable) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.values[string(key)]
	s.values[string(key)] = append([]byte(nil), value...)
	err := s.writeLocked()
	switch {
	case err == nil:
	case had:
		s.values[string(key)] = old
	default:
		delete(s.values, string(key))
	}
	return err
}

func (s *sealedStable) writeLocked() error {
	b, err := sealStable(s.values)
	if err != nil {
		return err
	}
	return s.bolt.Set([]byte(keyStable), b)
}

// Get implements raft.StableStore.
func (s *sealedStable) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[string(key)]
	if !ok {
		return nil, raftboltdb.ErrKeyNotFound // the library compares its text
	}
	return append([]byte(nil), value...), nil
}

// SetUint64 implements raft.StableStore.
func (s *sealedStable) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *sealedStable) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%s is no number", key)
	}
	return binary.BigEndian.Uint64(b), nil
}
