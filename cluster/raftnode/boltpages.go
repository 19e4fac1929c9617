// Walks the page tree of a bolt file before bolt does: bolt checks its meta pages only, and a damaged page makes it panic,
// recurse without end, lose entries or overwrite live ones.

package raftnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The layout of bolt's pages: a header (id 8, flags 2, count 2, overflow 4), one
// element for each key, then keys and values back to back in the same order.
const (
	boltElement      = 16
	boltBranchPage   = 0x01
	boltLeafPage     = 0x02
	boltMetaPage     = 0x04
	boltBucketLeaf   = 0x01 // flag of a leaf element: the value is a bucket
	boltBucketHeader = 16   // root page 8, sequence 8
	boltMaxDepth     = 32
)

var errBoltPage = errors.New("damaged page")

// boltWalk reads each page that can be reached, once.
type boltWalk struct {
	file     io.ReaderAt
	pageSize uint64
	pages    uint64 // pages in use
	seen     map[uint64]bool
}

// tree checks the page and all below it; low and high bound its keys (nil: no bound).
func (w *boltWalk) tree(id uint64, low, high []byte, depth int) error {
	page, err := w.read(id, depth)
	if err != nil {
		return err
	}
	return w.page(page, fmt.Sprintf("page %d", id), low, high, depth)
}

// read returns a page with its overflow, after checking that it is the right one and nobody else's.
func (w *boltWalk) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= w.pages || depth > boltMaxDepth {
		return nil, fmt.Errorf("%w: a reference to page %d, %d deep", errBoltPage, id, depth)
	}
	head := make([]byte, boltPageHeader)
	if _, err := w.file.ReadAt(head, int64(id*w.pageSize)); err != nil {
		return nil, err
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if binary.NativeEndian.Uint64(head) != id || id+overflow >= w.pages {
		return nil, fmt.Errorf("%w: page %d has another header", errBoltPage, id)
	}
	for p := id; p <= id+overflow; p++ {
		if w.seen[p] {
			return nil, fmt.Errorf("%w: page %d is used twice", errBoltPage, p)
		}
		w.seen[p] = true
	}
	page := make([]byte, (overflow+1)*w.pageSize)
	if _, err := w.file.ReadAt(page, int64(id*w.pageSize)); err != nil {
		return nil, err
	}
	return page, nil
}

// page checks one page, or a bucket that is written inside its parent's value.
func (w *boltWalk) page(page []byte, name string, low, high []byte, depth int) error {
	flags, count := binary.NativeEndian.Uint16(page[8:]), int(binary.NativeEndian.Uint16(page[10:]))
	if flags != boltBranchPage && flags != boltLeafPage || flags == boltBranchPage && count == 0 {
		return fmt.Errorf("%w: %s is of kind %#x with %d keys", errBoltPage, name, flags, count)
	}
	keys, children, err := elements(page, flags, count)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i, key := range keys {
		above := i == 0 && (low == nil || bytes.Compare(low, key) <= 0) || i > 0 && bytes.Compare(keys[i-1], key) < 0
		if !above || high != nil && bytes.Compare(key, high) >= 0 {
			return fmt.Errorf("%w: the keys of %s are out of order", errBoltPage, name)
		}
	}
	for i, child := range children {
		if child == nil {
			continue
		}
		if flags == boltLeafPage {
			err = w.bucket(child, fmt.Sprintf("bucket %q", keys[i]), depth)
		} else {
			next := high
			if i+1 < len(keys) {
				next = keys[i+1]
			}
			err = w.tree(binary.NativeEndian.Uint64(child), keys[i], next, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks what the value of a bucket's key points at.
func (w *boltWalk) bucket(value []byte, name string, depth int) error {
	if len(value) < boltBucketHeader {
		return fmt.Errorf("%w: %s has no header", errBoltPage, name)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return w.tree(root, nil, nil, depth+1)
	}
	inline := value[boltBucketHeader:]
	if len(inline) < boltPageHeader || binary.NativeEndian.Uint16(inline[8:]) != boltLeafPage {
		return fmt.Errorf("%w: %s is no page", errBoltPage, name)
	}
	return w.page(inline, name, nil, nil, depth+1)
}

// elements returns the keys of a page and what hangs below each: the page number
// of a branch, the value of a bucket, nil under a plain key. Bolt writes keys and
// values without a gap, so every position follows from the sizes.
func elements(page []byte, flags uint16, count int) (keys, children [][]byte, err error) {
	data := boltPageHeader + count*boltElement
	for i := range count {
		at := boltPageHeader + i*boltElement
		if at+boltElement > len(page) {
			return nil, nil, fmt.Errorf("%w: %d keys do not fit", errBoltPage, count)
		}
		e := page[at:]
		var bucket bool
		var pos, keySize, valueSize int
		if flags == boltLeafPage {
			kind := binary.NativeEndian.Uint32(e)
			if kind > boltBucketLeaf {
				return nil, nil, fmt.Errorf("%w: key %d is of kind %#x", errBoltPage, i, kind)
			}
			bucket = kind == boltBucketLeaf
			pos, keySize, valueSize = at+int(binary.NativeEndian.Uint32(e[4:])), int(binary.NativeEndian.Uint32(e[8:])), int(binary.NativeEndian.Uint32(e[12:]))
		} else {
			pos, keySize = at+int(binary.NativeEndian.Uint32(e)), int(binary.NativeEndian.Uint32(e[4:]))
		}
		if pos != data || pos+keySize+valueSize > len(page) || keySize == 0 {
			return nil, nil, fmt.Errorf("%w: key %d is not where it belongs", errBoltPage, i)
		}
		keys = append(keys, page[pos:pos+keySize])
		switch data += keySize + valueSize; {
		case flags == boltBranchPage:
			children = append(children, e[8:16])
		case bucket:
			children = append(children, page[pos+keySize:data])
		default:
			children = append(children, nil)
		}
	}
	return keys, children, nil
}
