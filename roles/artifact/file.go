// The file store: a directory that every daemon reaches.
//
//	cluster               the id of the cluster that owns the store
//	blobs/sha256/ab/cdef… one blob, complete from the moment it has its name
//	tmp/                  what is being written; leftovers of crashes
//	trash/cdef….nonce     what a Delete is just deciding about
//
// A blob is written to tmp, synced, and linked to its name, which never replaces
// anything. The exception: a copy that is damaged, or so old that a collection
// may be deciding about it, is replaced by the copy just written and verified.

package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

type fileStore struct {
	dir   string
	owner fsm.ClusterID
	admit admission
	copy  func(io.Writer, io.Reader) (int64, error) // io.Copy
	sync  func(*os.File) error                      // makes a file or a directory durable
}

func openFile(dir string, owner fsm.ClusterID) *fileStore {
	s := &fileStore{dir: dir, owner: owner, copy: io.Copy, sync: (*os.File).Sync}
	s.admit.check = s.claim
	return s
}

func (s *fileStore) tmp() string               { return filepath.Join(s.dir, "tmp") }
func (s *fileStore) trash() string             { return filepath.Join(s.dir, "trash") }
func (s *fileStore) blobs() string             { return filepath.Join(s.dir, "blobs", "sha256") }
func (s *fileStore) shard(shard string) string { return filepath.Join(s.blobs(), shard) }

func (s *fileStore) path(d Digest) string {
	h := d.hex()
	return filepath.Join(s.shard(h[:2]), h[2:])
}

// Put: see Store.
func (s *fileStore) Put(ctx context.Context, r io.Reader, want Want) (Blob, error) {
	if err := s.admit.pass(ctx); err != nil {
		return Blob{}, err
	}
	f, err := os.CreateTemp(s.tmp(), "put-*")
	if err != nil {
		return Blob{}, explainFile(err)
	}
	defer os.Remove(f.Name()) // after a link it is the second name of the blob
	defer f.Close()
	b, err := s.write(ctx, f, r, want)
	if err != nil {
		return Blob{}, err
	}
	b, err = s.name(f.Name(), b)
	return b, explainFile(err)
}

// write fills a temporary file, durably, and describes it as a blob.
func (s *fileStore) write(ctx context.Context, f *os.File, r io.Reader, want Want) (Blob, error) {
	in := newIntake(ctx, r, want)
	if _, err := s.copy(f, in); err != nil {
		return Blob{}, unmark(err)
	}
	d, err := in.digest()
	if err != nil {
		return Blob{}, err
	}
	if err := errors.Join(f.Chmod(0o400), s.sync(f)); err != nil {
		return Blob{}, explainFile(err)
	}
	info, err := f.Stat()
	if err != nil {
		return Blob{}, explainFile(err)
	}
	return Blob{Digest: d, Size: in.size, Modified: info.ModTime()}, nil
}

// name gives a written file the blob's name, unless a good and fresh copy has it.
func (s *fileStore) name(written string, b Blob) (Blob, error) {
	path := s.path(b.Digest)
	if err := s.makeShard(filepath.Dir(path)); err != nil {
		return Blob{}, err
	}
	for {
		err := os.Link(written, path)
		if !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return Blob{}, err
			}
			return b, s.syncDir(filepath.Dir(path))
		}
		old, err := s.intact(path, b)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // deleted between the two calls
		case err != nil:
			return Blob{}, err
		case old != nil && b.Modified.Sub(old.Modified) < Fresh:
			return *old, nil
		}
		// Both ways the name keeps standing for the same bytes. The file behind it
		// is a new one: a Delete that has judged the old one notices.
		if err := os.Rename(written, path); err != nil {
			return Blob{}, err
		}
		return b, s.syncDir(filepath.Dir(path))
	}
}

// intact describes the copy at path; nil when its bytes are not the blob's.
func (s *fileStore) intact(path string, b Blob) (*Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != b.Size {
		return nil, nil
	}
	if _, err := io.Copy(io.Discard, verify(f, b, passError)); errors.Is(err, ErrCorrupt) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return &Blob{Digest: b.Digest, Size: b.Size, Modified: info.ModTime()}, nil
}

// makeShard never makes the directories above: in a store whose file system is not mounted they are missing.
func (s *fileStore) makeShard(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.syncDir(s.blobs())
}

// Get: see Store.
func (s *fileStore) Get(ctx context.Context, d Digest) (io.ReadCloser, int64, error) {
	f, b, err := s.find(ctx, d)
	if err != nil {
		return nil, 0, err
	}
	return verify(f, b, explainFile), b.Size, nil
}

// Stat: see Store.
func (s *fileStore) Stat(ctx context.Context, d Digest) (Blob, error) {
	f, b, err := s.find(ctx, d)
	if err != nil {
		return Blob{}, err
	}
	return b, f.Close()
}

// find opens a blob. One that a Delete is deciding about, or was when it
// crashed, is in the trash for that moment and is found there.
func (s *fileStore) find(ctx context.Context, d Digest) (*os.File, Blob, error) {
	if err := s.admit.pass(ctx); err != nil {
		return nil, Blob{}, err
	}
	f, err := os.Open(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.openTrashed(d)
	}
	if errors.Is(err, fs.ErrNotExist) { // it may have come back before the trash was read
		f, err = os.Open(s.path(d))
	}
	if errors.Is(err, fs.ErrNotExist) {
		if gone := s.mounted(); gone != nil {
			return nil, Blob{}, gone
		}
		return nil, Blob{}, ErrMissing.Wrap(nil, "the artifact store has no blob %s", d)
	}
	if err != nil {
		return nil, Blob{}, explainFile(err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, Blob{}, explainFile(errors.Join(err, f.Close()))
	}
	return f, Blob{Digest: d, Size: info.Size(), Modified: info.ModTime()}, nil
}

func (s *fileStore) openTrashed(d Digest) (*os.File, error) {
	names, err := os.ReadDir(s.trash())
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), d.hex()+".") {
			return os.Open(filepath.Join(s.trash(), n.Name()))
		}
	}
	return nil, fs.ErrNotExist
}

// List: see Store.
func (s *fileStore) List(ctx context.Context, after Digest, fn func(Blob) error) error {
	if err := s.admit.pass(ctx); err != nil {
		return err
	}
	shards, err := os.ReadDir(s.blobs())
	if err != nil {
		return explainFile(err)
	}
	first := after.hex()[:2]
	for _, e := range shards {
		if len(e.Name()) != 2 || e.Name() < first {
			continue
		}
		if err := s.listShard(ctx, e.Name(), after, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *fileStore) listShard(ctx context.Context, shard string, after Digest, fn func(Blob) error) error {
	entries, err := os.ReadDir(s.shard(shard))
	if err != nil {
		return explainFile(err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		d, err := parseHex(shard + e.Name())
		if err != nil || d.Compare(after) <= 0 {
			continue // not a blob, or not asked for
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return explainFile(err)
		}
		if err := fn(Blob{Digest: d, Size: info.Size(), Modified: info.ModTime()}); err != nil {
			return err
		}
	}
	return nil
}

// Now: see Store. The clock is the one of the file server.
func (s *fileStore) Now(ctx context.Context) (time.Time, error) {
	if err := s.admit.pass(ctx); err != nil {
		return time.Time{}, err
	}
	f, err := os.CreateTemp(s.tmp(), "now-*")
	if err != nil {
		return time.Time{}, explainFile(err)
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return time.Time{}, explainFile(err)
	}
	return info.ModTime(), nil
}

// Health: see Store.
func (s *fileStore) Health(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	return explainFile(s.checkMarker())
}

// Close: see Store.
func (s *fileStore) Close() error { return nil }

// explainFile gives an error of the file system its place among the store's errors.
func explainFile(err error) error {
	var known *cluster.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrFull.Wrap(err, "")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return ErrRefused.Wrap(err, "")
	}
	return ErrUnavailable.Wrap(err, "")
}

func passError(err error) error { return err }

// syncDir makes the names in a directory durable.
func (s *fileStore) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(s.sync(d), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
