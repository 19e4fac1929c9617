// How the file store deletes: a copy leaves its name first and is judged then,
// so that a Put which renews the blob at that moment loses nothing.

package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Delete: see Store. Between the two renames readers find the copy in the trash.
func (s *fileStore) Delete(ctx context.Context, d Digest, notAfter time.Time) (bool, error) {
	if err := s.admit.pass(ctx); err != nil {
		return false, err
	}
	info, err := os.Stat(s.path(d))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, explainFile(err)
	}
	if info.ModTime().After(notAfter) {
		return false, nil
	}
	return s.discard(d, notAfter)
}

// discard deletes a copy that looked old enough: it may be another one by now.
func (s *fileStore) discard(d Digest, notAfter time.Time) (bool, error) {
	trashed := filepath.Join(s.trash(), d.hex()+"."+rand.Text())
	if err := os.Rename(s.path(d), trashed); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, explainFile(err)
	}
	info, err := os.Stat(trashed)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a Tidy has put it back
	}
	if err != nil {
		return false, explainFile(err)
	}
	if info.ModTime().After(notAfter) { // renewed since it was judged
		return false, s.putBack(trashed, d)
	}
	return true, ignoreMissing(os.Remove(trashed))
}

// putBack gives a trashed copy its name again, unless a newer copy has it.
func (s *fileStore) putBack(trashed string, d Digest) error {
	if err := os.Link(trashed, s.path(d)); err != nil && !errors.Is(err, fs.ErrExist) {
		return ignoreMissing(err)
	}
	return ignoreMissing(os.Remove(trashed))
}

// Tidy: see Store. What a crashed Delete left undecided gets its name back.
func (s *fileStore) Tidy(ctx context.Context, notAfter time.Time) (int, error) {
	if err := s.admit.pass(ctx); err != nil {
		return 0, err
	}
	trashed, err := os.ReadDir(s.trash())
	if err != nil {
		return 0, explainFile(err)
	}
	removed := 0
	for _, e := range trashed {
		name, _, _ := strings.Cut(e.Name(), ".")
		d, err := parseHex(name)
		if err != nil {
			continue
		}
		if err := s.putBack(filepath.Join(s.trash(), e.Name()), d); err != nil {
			return removed, err
		}
		removed++
	}
	left, err := os.ReadDir(s.tmp())
	if err != nil {
		return removed, explainFile(err)
	}
	for _, e := range left {
		info, err := e.Info()
		if err != nil || info.ModTime().After(notAfter) {
			continue // gone meanwhile, or being written
		}
		if err := ignoreMissing(os.Remove(filepath.Join(s.tmp(), e.Name()))); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return explainFile(err)
}
