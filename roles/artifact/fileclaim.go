// Whose file store it is: the marker that its first cluster leaves.

package artifact

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const markerName = "cluster"

// claim checks the marker, and makes it in a store that nobody has used. The
// marker is complete before it has its name and never replaced, so of two
// clusters that meet at an empty directory one wins and the other is told.
func (s *fileStore) claim(context.Context) error {
	err := s.checkMarker()
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return explainFile(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "blobs")); err == nil {
		return ErrOtherCluster.Wrap(nil, "%s holds blobs but no marker of the cluster that owns them", s.dir)
	}
	if err := s.writeMarker(); err != nil {
		return explainFile(err)
	}
	return s.checkMarker()
}

// checkMarker answers fs.ErrNotExist when there is none. The directories are
// made after the marker and only with it: where they exist without it, the
// marker was lost, and where both are missing, perhaps a mount is.
func (s *fileStore) checkMarker() error {
	b, err := os.ReadFile(filepath.Join(s.dir, markerName))
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return explainFile(err)
	}
	if other := strings.TrimSpace(string(b)); other != s.owner.String() {
		return ErrOtherCluster.Wrap(nil, "the artifact store %s belongs to cluster %.40q", s.dir, other)
	}
	for _, dir := range []string{s.tmp(), s.trash(), s.blobs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return explainFile(err)
		}
	}
	return nil
}

func (s *fileStore) writeMarker() error {
	f, err := os.CreateTemp(s.dir, ".cluster-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(s.owner.String() + "\n")
	if err := errors.Join(err, s.sync(f), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), filepath.Join(s.dir, markerName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.syncDir(s.dir)
}

// mounted tells a store without a blob from a store that is not there.
func (s *fileStore) mounted() error {
	if _, err := os.Stat(filepath.Join(s.dir, markerName)); err != nil {
		return explainFile(err)
	}
	return nil
}
