// The administration socket: a unix socket that only its owner may open.

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ErrAdminInUse: a living daemon answers on the socket.
var ErrAdminInUse = errors.New("administration socket: another daemon answers")

// ListenAdmin listens on a unix socket with mode 0600. A socket that a dead
// process left behind is replaced; one that answers, and any other file, is an error.
func ListenAdmin(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("administration socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("administration socket: %s exists and is not a socket", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			return nil, errors.Join(fmt.Errorf("%w on %s", ErrAdminInUse, path), conn.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("administration socket: %w", err)
		}
	}
	return bindPrivately(path)
}

// bindPrivately binds inside a private directory and moves the socket into
// place afterwards: between bind and chmod anybody could have connected.
func bindPrivately(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s") // mode 0700, short: socket paths are bounded
	if err != nil {
		return nil, fmt.Errorf("administration socket: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // empty by now, or of no use
	inner := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: inner, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("administration socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // it knows the inner path only
	if err := errors.Join(os.Chmod(inner, 0o600), os.Rename(inner, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("administration socket: %w", err), l.Close())
	}
	return &adminListener{UnixListener: l, path: path}, nil
}

type adminListener struct {
	*net.UnixListener
	path string
}

// Close stops listening and removes the socket.
func (l *adminListener) Close() error {
	err := l.UnixListener.Close()
	if rm := os.Remove(l.path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}
