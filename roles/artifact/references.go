// The set of digests that rows name, small enough for millions of them.

package artifact

import (
	"encoding/binary"
	"slices"
)

// references keeps the first eight bytes of each digest. Two digests that share
// them are taken for one, which can only keep garbage and never lose a blob.
type references struct{ keys []uint64 }

func key(d Digest) uint64 { return binary.BigEndian.Uint64(d[:]) }

func (r *references) add(d Digest) { r.keys = append(r.keys, key(d)) }

// seal must come between the last add and the first has.
func (r *references) seal() {
	slices.Sort(r.keys)
	r.keys = slices.Compact(r.keys)
}

func (r *references) has(d Digest) bool {
	_, found := slices.BinarySearch(r.keys, key(d))
	return found
}
