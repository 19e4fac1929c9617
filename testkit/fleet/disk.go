// A disk that is full: a daemon's data directory on a small file system in memory.

package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is a small file system at a directory.
type disk struct{ dir string }

// mountDisk needs root.
func mountDisk(dir string, size int64) (*disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return nil, fmt.Errorf("a disk of %d bytes at %s: %w", size, dir, err)
	}
	return &disk{dir}, nil
}

// unmount gives the memory back, whoever still looks at it.
func (d *disk) unmount() error {
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return nil
}

// filler is the file that takes all space.
func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// FillDisk takes all space of the daemon's data directory and returns how many
// bytes that were. The fleet must have been started with Options.DataSpace.
func (n *Node) FillDisk() (int64, error) {
	if n.disk == nil {
		return 0, fmt.Errorf("%s has no disk of its own", n.Name)
	}
	out, err := os.OpenFile(n.disk.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	var filled int64
	for block := make([]byte, 1<<20); ; {
		n, err := out.Write(block)
		filled += int64(n)
		switch {
		case errors.Is(err, syscall.ENOSPC) && len(block) > 1:
			block = block[:len(block)/2]
		case errors.Is(err, syscall.ENOSPC):
			return filled, nil
		case err != nil:
			return filled, err
		}
	}
}

// FreeDisk gives the space back.
func (n *Node) FreeDisk() error {
	if n.disk == nil {
		return fmt.Errorf("%s has no disk of its own", n.Name)
	}
	return os.Remove(n.disk.filler())
}
