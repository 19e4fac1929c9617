// Faults that a supervisor injects, and how often each really happened.

package disk

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Fault refuses or delays operations. Zero fields match everything.
type Fault struct {
	Op    Op
	Path  string        // part of the path
	Skip  int           // matching operations that pass first
	Times int           // matching operations that are hit; 0: all that follow
	Errno unix.Errno    // what the operation answers; 0: it is carried out
	Delay time.Duration // how long it takes; Hang: until the process ends
}

// Hang as a delay: the operation never ends.
const Hang time.Duration = -1

type activeFault struct {
	Fault
	seen, hit int
}

// take reports whether the fault hits this operation.
func (f *activeFault) take(op Op, path string) bool {
	if f.Op != 0 && f.Op != op || !strings.Contains(path, f.Path) {
		return false
	}
	f.seen++
	if f.seen <= f.Skip || f.Times > 0 && f.hit == f.Times {
		return false
	}
	f.hit++
	return true
}
