// Reads a bolt file's own bookkeeping before bolt opens it: bolt panics on a truncated file and silently falls back when one
// meta page is gone.

package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
)

// The layout of a bolt meta page: a page header, then the meta struct with its checksum last.
const (
	boltPageHeader   = 16
	boltMagic        = 0xED0CDAED
	boltMetaSize     = 64
	boltChecksumAt   = 56
	boltVersionAt    = 4
	boltPageSizeAt   = 8
	boltRootAt       = 16
	boltFreelistAt   = 32
	boltHighPageAt   = 40
	boltTxidAt       = 48
	boltVersion      = 2
	boltMaxPageSize  = 64 << 10
	boltNoFreelist   = math.MaxUint64
	boltMetaPageRead = boltPageHeader + boltMetaSize
)

// boltMeta is what a meta page states.
type boltMeta struct {
	pageSize uint64
	root     uint64 // root page of the newest tree
	freelist uint64 // page of the list of free pages
	pages    uint64 // pages in use
	txid     uint64
}

// checkBoltFile reports damage that bolt would panic over or hide. It only
// reads. Both meta pages must be whole: they are written one at a time and
// within one disk sector, so a power cut tears neither, and bolt would
// otherwise fall back to the older one and lose the last transaction.
func checkBoltFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	first, err := readBoltMeta(f, 0)
	if err != nil {
		return fmt.Errorf("meta page 0: %w", err)
	}
	second, err := readBoltMeta(f, int64(first.pageSize))
	if err != nil {
		return fmt.Errorf("meta page 1: %w", err)
	}
	newest := first
	if second.txid > first.txid {
		newest = second
	}
	if second.pageSize != first.pageSize {
		return fmt.Errorf("pages of %d and of %d bytes", first.pageSize, second.pageSize)
	}
	// Bolt would believe a list of free pages and overwrite what it names. This node
	// writes none (openBolt): bolt has to find the free pages by a walk of its own.
	if newest.freelist != boltNoFreelist {
		return errors.New("it has a list of free pages")
	}
	if need := newest.pages * newest.pageSize; uint64(info.Size()) < need {
		return fmt.Errorf("truncated: %d bytes, its pages need %d", info.Size(), need)
	}
	walk := boltWalk{file: f, pageSize: newest.pageSize, pages: newest.pages, seen: map[uint64]bool{}}
	return walk.tree(newest.root, nil, nil, 0)
}

// readBoltMeta returns what the meta page at offset at states.
func readBoltMeta(r io.ReaderAt, at int64) (m boltMeta, err error) {
	var page [boltMetaPageRead]byte
	if _, err := r.ReadAt(page[:], at); err != nil {
		return m, err
	}
	meta := page[boltPageHeader:]
	sum := fnv.New64a()
	sum.Write(meta[:boltChecksumAt])
	m = boltMeta{
		pageSize: uint64(binary.NativeEndian.Uint32(meta[boltPageSizeAt:])),
		root:     binary.NativeEndian.Uint64(meta[boltRootAt:]),
		freelist: binary.NativeEndian.Uint64(meta[boltFreelistAt:]),
		pages:    binary.NativeEndian.Uint64(meta[boltHighPageAt:]),
		txid:     binary.NativeEndian.Uint64(meta[boltTxidAt:]),
	}
	switch {
	case binary.NativeEndian.Uint32(meta) != boltMagic || binary.NativeEndian.Uint32(meta[boltVersionAt:]) != boltVersion:
		return m, errors.New("not a bolt file")
	case binary.NativeEndian.Uint64(meta[boltChecksumAt:]) != sum.Sum64():
		return m, errors.New("checksum mismatch")
	case binary.NativeEndian.Uint16(page[8:]) != boltMetaPage || binary.NativeEndian.Uint64(page[:]) != m.txid%2: // not under the checksum
		return m, errors.New("another header")
	case m.pageSize < 512 || m.pageSize > boltMaxPageSize || m.pageSize&(m.pageSize-1) != 0 || m.pages > 1<<40:
		return m, errors.New("impossible sizes")
	}
	return m, nil
}
