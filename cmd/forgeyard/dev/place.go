// Where a fleet of `forgeyard dev` lives: its directory, and the pointer by which sub-commands find it.

package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tempPrefix begins the name of every temporary fleet directory.
const tempPrefix = "forgeyard-dev-"

// makeDir makes the directory of a new fleet.
func makeDir(keep string) (dir string, temporary bool, err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", tempPrefix)
		return dir, true, err
	}
	if dir, err = filepath.Abs(keep); err != nil {
		return "", false, err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", false, fmt.Errorf("%s is not empty: --keep wants a new directory", dir)
	}
	return dir, false, os.MkdirAll(dir, 0o700)
}

func keepText(temporary bool, dir string) string {
	if temporary {
		return "temporary: Ctrl-C removes everything, --keep DIR would keep it"
	}
	return "kept in " + dir
}

// pointerFile names the directory of the fleet that this user started last.
func pointerFile() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("forgeyard-dev.%d", os.Getuid()))
}

// pointedAt reads the pointer; "" when there is none.
func pointedAt() string {
	b, err := os.ReadFile(pointerFile())
	if err != nil {
		return ""
	}
	return string(b)
}

// point makes dir the fleet that sub-commands find.
func point(dir string) error { return os.WriteFile(pointerFile(), []byte(dir), 0o600) }

// unpoint removes the pointer, unless a later fleet has taken it over.
func unpoint(dir string) error {
	if pointedAt() != dir {
		return nil
	}
	if err := os.Remove(pointerFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes the temporary directory of a fleet that was killed and could
// not do so itself; it returns "" when there is none. A fleet whose control
// socket answers lives, and a directory that the user chose is the user's.
func sweep() (string, error) {
	dir := pointedAt()
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) || !strings.HasPrefix(filepath.Base(dir), tempPrefix) {
		return "", nil
	}
	if _, err := os.Stat(dir); err != nil {
		return "", nil
	}
	if conn, err := net.DialTimeout("unix", filepath.Join(dir, socketName), time.Second); err == nil {
		return "", conn.Close()
	}
	return dir, os.RemoveAll(dir)
}
