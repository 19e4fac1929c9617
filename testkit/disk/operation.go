// Decodes a stopped system call into an operation that can be carried out in its place.

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// operation is a decoded call. run carries it out in this process, on the
// supervised one's own open file.
type operation struct {
	event   Event
	run     func() (int64, unix.Errno)
	proceed bool // the kernel carries it out after run
	fd      int  // a duplicate of the file; -1 without
}

func (o *operation) close() {
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
	}
}

// decode returns nil when the call does not concern the supervised directory.
func (p *Process) decode(n notification) (*operation, error) {
	switch uint32(n.nr) {
	case unix.SYS_OPENAT:
		return p.decodeOpen(n)
	case unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT:
		return p.decodePath(n)
	}
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.cmd.Process.Pid, int32(n.args[0])))
	if err != nil {
		return nil, nil // a closed descriptor: the kernel says so
	}
	path, ok := p.below(target)
	if !ok {
		return nil, nil
	}
	fd, err := unix.PidfdGetfd(p.pidfd, int(int32(n.args[0])), 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the file: %w", err)
	}
	op := &operation{fd: fd, event: Event{Path: path}}
	done := func(err error) (int64, unix.Errno) { return 0, errnoOf(err) }
	switch uint32(n.nr) {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		// What a power cut takes is decided here, so the machine's disk need not be waited for.
		op.event.Op, op.run = Sync, func() (int64, unix.Errno) { return 0, 0 }
		return op, nil
	case unix.SYS_FTRUNCATE:
		op.event.Op, op.event.At = Truncate, int64(n.args[1])
		op.run = func() (int64, unix.Errno) { return done(unix.Ftruncate(fd, op.event.At)) }
		return op, nil
	}
	if op.event.Data, err = p.memory(n.args[1], n.args[2]); err != nil {
		op.close()
		return nil, err
	}
	op.event.Op, op.event.At = Write, int64(n.args[3])
	write := func() (int, error) { return unix.Pwrite(fd, op.event.Data, op.event.At) }
	if uint32(n.nr) == unix.SYS_WRITE {
		if op.event.At, err = unix.Seek(fd, 0, unix.SEEK_CUR); err != nil {
			op.close()
			return nil, fmt.Errorf("file position: %w", err)
		}
		write = func() (int, error) { return unix.Write(fd, op.event.Data) }
	}
	op.run = func() (int64, unix.Errno) {
		w, err := write()
		if err != nil {
			return 0, errnoOf(err)
		}
		op.event.Data = op.event.Data[:w]
		return int64(w), 0
	}
	return op, nil
}

// decodeOpen matters only where a file is created or emptied.
func (p *Process) decodeOpen(n notification) (*operation, error) {
	flags := n.args[2]
	if flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return nil, nil
	}
	path, rel, ok, err := p.path(n.args[0], n.args[1])
	if err != nil || !ok {
		return nil, err
	}
	op := &operation{fd: -1, proceed: true, run: func() (int64, unix.Errno) { return 0, 0 }, event: Event{Path: rel}}
	switch info, err := os.Lstat(path); {
	case err == nil && flags&unix.O_TRUNC != 0 && info.Mode().IsRegular():
		op.event.Op = Truncate
	case errors.Is(err, os.ErrNotExist) && flags&unix.O_CREAT != 0:
		op.event.Op = Create
	default:
		return nil, nil
	}
	return op, nil
}

func (p *Process) decodePath(n notification) (*operation, error) {
	path, rel, ok, err := p.path(n.args[0], n.args[1])
	if err != nil || !ok {
		return nil, err
	}
	op := &operation{fd: -1, event: Event{Path: rel}}
	switch uint32(n.nr) {
	case unix.SYS_MKDIRAT:
		op.event.Op, op.run = Mkdir, func() (int64, unix.Errno) { return 0, errnoOf(unix.Mkdir(path, uint32(n.args[2]))) }
	case unix.SYS_UNLINKAT:
		op.event.Op, op.run = Remove, func() (int64, unix.Errno) { return 0, errnoOf(unix.Unlinkat(unix.AT_FDCWD, path, int(n.args[2]))) }
	case unix.SYS_RENAMEAT:
		to, toRel, ok, err := p.path(n.args[2], n.args[3])
		if err != nil || !ok {
			return nil, errors.Join(err, fmt.Errorf("%s leaves the supervised directory", rel))
		}
		op.event.Op, op.event.To, op.run = Rename, toRel, func() (int64, unix.Errno) { return 0, errnoOf(unix.Rename(path, to)) }
	}
	return op, nil
}

// path reads a path argument; ok: it lies below the supervised directory.
func (p *Process) path(dirfd, at uint64) (path, rel string, ok bool, err error) {
	// A string may end just before memory that is not there: read up to the end of its page only.
	b, err := p.memory(at, 4096-at%4096)
	if err == nil && bytes.IndexByte(b, 0) < 0 {
		var more []byte
		more, err = p.memory(at+uint64(len(b)), 4096)
		b = append(b, more...)
	}
	if err != nil {
		return "", "", false, err
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	path = string(text)
	if !filepath.IsAbs(path) {
		from := fmt.Sprintf("/proc/%d/cwd", p.cmd.Process.Pid)
		if fd := int32(dirfd); fd != unix.AT_FDCWD {
			from = fmt.Sprintf("/proc/%d/fd/%d", p.cmd.Process.Pid, fd)
		}
		base, err := os.Readlink(from)
		if err != nil {
			return "", "", false, err
		}
		path = filepath.Join(base, path)
	}
	rel, ok = p.below(path)
	return path, rel, ok, nil
}

// memory reads the process' memory.
func (p *Process) memory(at, size uint64) ([]byte, error) {
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(p.cmd.Process.Pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err != nil || n != len(b) {
		return nil, fmt.Errorf("read %d bytes of the process' memory: %d, %w", size, n, err)
	}
	return b, nil
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return unix.EIO
	}
	return errno
}
