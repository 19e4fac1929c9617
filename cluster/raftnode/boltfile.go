// Reads a bolt file's own bookkeeping before bolt opens it: bolt panics on a truncated file and silently falls back when one
// meta page is gone.

package raftnode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The layout of a bolt meta page: a page header, then the meta struct with its checksum last.
const (
	boltPageHeader   = 16
	boltMagic        = 0xED0CDAED
	boltMetaSize     = 64
	boltChecksumAt   = 56
	boltPageSizeAt   = 8
	boltHighPageAt   = 40
	boltMaxPageSize  = 64 << 10
	boltMetaPageRead = boltPageHeader + boltMetaSize
)

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
	pageSize, high0, err := readBoltMeta(f, 0)
	if err != nil {
		return fmt.Errorf("meta page 0: %w", err)
	}
	_, high1, err := readBoltMeta(f, int64(pageSize))
	if err != nil {
		return fmt.Errorf("meta page 1: %w", err)
	}
	if need := max(high0, high1) * uint64(pageSize); uint64(info.Size()) < need {
		return fmt.Errorf("truncated: %d bytes, its pages need %d", info.Size(), need)
	}
	return nil
}

// readBoltMeta returns the page size and the number of pages in use that the meta page at offset at states.
func readBoltMeta(r io.ReaderAt, at int64) (pageSize uint32, pages uint64, err error) {
	var page [boltMetaPageRead]byte
	if _, err := r.ReadAt(page[:], at); err != nil {
		return 0, 0, err
	}
	meta := page[boltPageHeader:]
	sum := fnv.New64a()
	sum.Write(meta[:boltChecksumAt])
	pageSize = binary.NativeEndian.Uint32(meta[boltPageSizeAt:])
	pages = binary.NativeEndian.Uint64(meta[boltHighPageAt:])
	switch {
	case binary.NativeEndian.Uint32(meta) != boltMagic:
		return 0, 0, errors.New("not a bolt file")
	case binary.NativeEndian.Uint64(meta[boltChecksumAt:]) != sum.Sum64():
		return 0, 0, errors.New("checksum mismatch")
	case pageSize < 512 || pageSize > boltMaxPageSize || pages > 1<<40:
		return 0, 0, errors.New("impossible sizes")
	}
	return pageSize, pages, nil
}
