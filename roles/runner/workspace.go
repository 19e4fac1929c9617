// The directories of an attempt: made fresh, filled with what it is given, removed at its end and after a crash.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"
)

const (
	workDir   = "work"      // one directory for each attempt that runs
	guardFile = "work.lock" // shared lock of every supervisor
)

// workspace is one attempt's. Its limits count everything below root.
type workspace struct {
	root string
}

// The parts of a workspace.
const (
	jobPart   = "job"   // the working directory
	homePart  = "home"  // HOME
	tempPart  = "tmp"   // TMPDIR
	stagePart = "stage" // archives on their way in and out; not the job's
)

func (w workspace) path(part string) string { return filepath.Join(w.root, part) }

// newWorkspace makes an attempt's directories. What a dead process left under the name is removed.
func newWorkspace(dir, lease string) (workspace, error) {
	w := workspace{root: filepath.Join(dir, workDir, lease)}
	if err := removeAll(w.root); err != nil {
		return w, fmt.Errorf("working directory: %w", err)
	}
	for _, part := range []string{jobPart, homePart, tempPart, stagePart} {
		if err := os.MkdirAll(w.path(part), 0o700); err != nil {
			return w, fmt.Errorf("working directory: %w", err)
		}
	}
	return w, nil
}

func (w workspace) remove() error { return removeAll(w.root) }

// removeAll removes a tree, also where a job has taken away its own permissions.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) // called before the directory is read; what fails shows below
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// merge moves what was unpacked at from to where to is. A directory is joined
// with one of the same name, a file takes the place of a file; anything else is
// refused, so that no link that came with another archive is passed through.
func (w workspace) merge(from, to string) error {
	root, err := os.OpenRoot(w.root)
	if err != nil {
		return err
	}
	defer root.Close()
	return mergeIn(root, from, to)
}

func mergeIn(root *os.Root, from, to string) error {
	held, err := fs.ReadDir(root.FS(), from)
	if err != nil {
		return err
	}
	for _, e := range held {
		src, dst := path.Join(from, e.Name()), path.Join(to, e.Name())
		there, err := root.Lstat(dst)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = root.Rename(src, dst)
		case err != nil:
		case e.IsDir() && there.IsDir():
			err = mergeIn(root, src, dst)
		case e.IsDir() || there.IsDir():
			err = fmt.Errorf("%s is a directory in one archive and none in another", dst)
		default:
			err = root.Rename(src, dst)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitQuiet waits until no supervisor of an earlier agent process runs: each
// kills its attempt as soon as it sees that its agent is gone. Then it removes
// their working directories. Giving their leases up before would let the next
// attempt of a job meet the last.
func awaitQuiet(ctx context.Context, dir string, bound time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, guardFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("agent directory: %w", err)
	}
	defer f.Close() // and with it the lock
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return context.Cause(ctx)
		case <-deadline.C:
			again.Stop()
			return fmt.Errorf("processes of an earlier agent still run below %s: %w", filepath.Join(dir, workDir), err)
		}
	}
	if err := removeAll(filepath.Join(dir, workDir)); err != nil {
		return fmt.Errorf("working directories of an earlier agent: %w", err)
	}
	return nil
}
