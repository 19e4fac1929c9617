// What is recorded of a process' file operations.

package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Op is a kind of file operation.
type Op uint8

// The operations that are recorded.
const (
	Write Op = iota + 1
	Truncate
	Sync // of a file or a directory
	Create
	Mkdir
	Rename
	Remove
)

func (o Op) String() string {
	return [...]string{"?", "write", "truncate", "sync", "create", "mkdir", "rename", "remove"}[o]
}

// Event is one operation, carried out or refused. Paths are relative to the supervised directory.
type Event struct {
	Op   Op
	Path string
	To   string // Rename: the new path
	At   int64  // Write: the offset; Truncate: the size
	Data []byte // Write

	Errno unix.Errno // the operation was refused with it
}

func (e Event) String() string {
	if e.Errno != 0 {
		return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Errno)
	}
	switch e.Op {
	case Write:
		return fmt.Sprintf("write %s %d+%d", e.Path, e.At, len(e.Data))
	case Truncate:
		return fmt.Sprintf("truncate %s to %d", e.Path, e.At)
	case Rename:
		return fmt.Sprintf("rename %s to %s", e.Path, e.To)
	}
	return e.Op.String() + " " + e.Path
}
