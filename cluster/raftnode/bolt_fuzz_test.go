// Fuzzing of what reads a bolt file before bolt does: whatever it accepts, bolt opens, reads and writes without a panic.

package raftnode

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// smallPage keeps the inputs short; bolt takes it as it takes the machine's own.
const smallPage = 512

var boltOptions = bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, PageSize: smallPage, NoSync: true, NoGrowSync: true}

// boltFileOf is a log store with so many entries, without the pages that are not in use.
func boltFileOf(f *testing.F, entries int) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), storeFile)
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &boltOptions})
	require.NoError(f, err)
	stable, err := openStable(bolt)
	require.NoError(f, err)
	require.NoError(f, stable.SetUint64([]byte(keyCurrentTerm), 3))
	for i := range entries {
		e := raft.Log{Index: uint64(i + 1), Term: 2, Data: bytes.Repeat([]byte{'x'}, 40)}
		e.Extensions = binary.BigEndian.AppendUint32(nil, entrySum(&e))
		require.NoError(f, bolt.StoreLog(&e))
	}
	require.NoError(f, bolt.Close())
	require.NoError(f, checkBoltFile(path))
	b, err := os.ReadFile(path)
	require.NoError(f, err)
	pages := binary.NativeEndian.Uint64(newestMeta(b)[boltHighPageAt:])
	return append(b[:pages*smallPage], make([]byte, max(0, 4096-int(pages)*smallPage))...) // bolt reads its first 4096 bytes at once
}

func newestMeta(b []byte) []byte {
	first, second := b[boltPageHeader:], b[smallPage+boltPageHeader:]
	if binary.NativeEndian.Uint64(second[boltTxidAt:]) > binary.NativeEndian.Uint64(first[boltTxidAt:]) {
		return second
	}
	return first
}

// sealMetas gives both meta pages a valid checksum, so that what is behind it is reached.
func sealMetas(b []byte) {
	seal := func(at int) (meta []byte) {
		if at < 0 || at+boltMetaPageRead > len(b) {
			return nil
		}
		meta = b[at+boltPageHeader : at+boltMetaPageRead]
		sum := fnv.New64a()
		sum.Write(meta[:boltChecksumAt])
		binary.NativeEndian.PutUint64(meta[boltChecksumAt:], sum.Sum64())
		return meta
	}
	if first := seal(0); first != nil {
		seal(int(binary.NativeEndian.Uint32(first[boltPageSizeAt:])))
	}
}

func FuzzBoltFile(f *testing.F) {
	fresh, log := boltFileOf(f, 0), boltFileOf(f, 12)
	changed := func(change func(b []byte)) []byte {
		b := bytes.Clone(log)
		change(b)
		return b
	}
	pageOf := func(b []byte, flags uint16) int { // the first page of a kind
		for at := 2 * smallPage; at < len(b); at += smallPage {
			if binary.NativeEndian.Uint16(b[at+8:]) == flags && binary.NativeEndian.Uint16(b[at+10:]) > 1 {
				return at
			}
		}
		f.Fatal("no such page")
		return 0
	}
	branch, leaf := pageOf(log, boltBranchPage), pageOf(log, boltLeafPage)
	corpus.Add(f, "fresh", fresh, false)
	corpus.Add(f, "log", log, false)
	corpus.Add(f, "cut", log[:len(log)-smallPage], false)
	corpus.Add(f, "one meta page torn", changed(func(b []byte) { b[smallPage+boltPageHeader+boltTxidAt]++ }), false)
	corpus.Add(f, "another header of a meta page", changed(func(b []byte) { b[9] = 0x20 }), false)
	corpus.Add(f, "pages beyond the end", changed(func(b []byte) {
		for _, at := range []int{0, smallPage} {
			binary.NativeEndian.PutUint64(b[at+boltPageHeader+boltHighPageAt:], 1<<40)
		}
	}), true)
	corpus.Add(f, "a page size of no power", changed(func(b []byte) { binary.NativeEndian.PutUint32(b[boltPageHeader+boltPageSizeAt:], smallPage+1) }), true)
	corpus.Add(f, "a list of free pages", changed(func(b []byte) {
		for _, at := range []int{0, smallPage} {
			binary.NativeEndian.PutUint64(b[at+boltPageHeader+boltFreelistAt:], uint64(leaf/smallPage))
		}
	}), true)
	corpus.Add(f, "a branch that is its own child", changed(func(b []byte) {
		binary.NativeEndian.PutUint64(b[branch+boltPageHeader+8:], uint64(branch/smallPage))
	}), false)
	corpus.Add(f, "two buckets on one page", changed(func(b []byte) {
		// The root page has conf and logs, each with the page of its own root in front of its value.
		at := binary.NativeEndian.Uint64(newestMeta(b)[boltRootAt:]) * smallPage
		_, buckets, err := elements(b[at:at+smallPage], boltLeafPage, 2)
		require.NoError(f, err)
		copy(buckets[0], buckets[1][:8])
	}), false)
	corpus.Add(f, "another page's header", changed(func(b []byte) { b[leaf]++ }), false)
	corpus.Add(f, "keys that do not fit", changed(func(b []byte) { binary.NativeEndian.PutUint16(b[leaf+10:], 0xffff) }), false)
	corpus.Add(f, "a key of all memory", changed(func(b []byte) { binary.NativeEndian.PutUint32(b[leaf+boltPageHeader+8:], 0xffffffff) }), false)
	corpus.Add(f, "an overflow over all pages", changed(func(b []byte) { binary.NativeEndian.PutUint32(b[leaf+12:], 0xffffffff) }), false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if b = bytes.Clone(b); seal {
			sealMetas(b)
		}
		path := filepath.Join(t.TempDir(), storeFile)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		if checkBoltFile(path) != nil {
			return
		}
		options := boltOptions
		options.Timeout = time.Second
		db, err := bbolt.Open(path, 0o600, &options)
		require.NoError(t, err, "bolt refuses what was accepted")
		require.NoError(t, db.View(func(tx *bbolt.Tx) error {
			for err := range tx.Check() {
				t.Errorf("bolt's own check: %v", err)
			}
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return b.ForEach(func(_, _ []byte) error { return nil }) })
		}))
		require.NoError(t, db.Close())
		if bolt, err := openBolt(path, false); err == nil { // it adds the buckets that are missing
			require.NoError(t, guarded(path, func() error { return bolt.Set([]byte(keyStable), []byte("x")) }))
			require.NoError(t, bolt.Close())
			require.NoError(t, checkBoltFile(path), "what bolt wrote on top")
		}
	})
}
