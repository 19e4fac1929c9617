// Packing a directory: the same tree always gives the same bytes.

package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Packed tells what Pack wrote and what it left out.
type Packed struct {
	Contents
	Skipped []string // links that lead out of the tree, devices, pipes and sockets
}

// Pack writes a tar of the paths below root; no paths mean all of root. Names
// are sorted, times and owners are zero, modes are 0644 or, for directories and
// what is executable, 0755. Left out are entries named .git and what Packed
// lists. A tree that Pack accepts within the same limits, Unpack accepts too.
// Errors: ErrLimit, ErrEscape for a path outside of root, and those of the file
// system and of w.
func Pack(ctx context.Context, root string, paths []string, limits Limits, w io.Writer) (Packed, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return Packed{}, fmt.Errorf("pack: %w", err)
	}
	defer r.Close()
	p := &packer{ctx: ctx, root: r, tar: tar.NewWriter(w), rules: newRules(limits)}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, one := range minimal(paths) {
		if err := p.add(one); err != nil {
			return Packed{}, fmt.Errorf("pack: %w", err)
		}
	}
	if err := p.tar.Close(); err != nil {
		return Packed{}, fmt.Errorf("pack: %w", err)
	}
	return Packed{Contents: p.rules.contents, Skipped: p.skipped}, nil
}

// PackZstd is Pack in one zstd frame, which is how trees are stored. The same
// tree gives the same bytes as long as the binary is the same.
func PackZstd(ctx context.Context, root string, paths []string, limits Limits, w io.Writer) (Packed, error) {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow))
	if err != nil {
		return Packed{}, fmt.Errorf("pack: %w", err)
	}
	p, err := Pack(ctx, root, paths, limits, z)
	if closed := z.Close(); err == nil && closed != nil {
		err = fmt.Errorf("pack: %w", closed)
	}
	return p, err
}

// minimal sorts paths and drops what lies below another of them.
func minimal(paths []string) []string {
	var clean []string
	for _, p := range paths {
		clean = append(clean, path.Clean(p))
	}
	slices.SortFunc(clean, comparePaths)
	var kept []string
	for _, p := range clean {
		if len(kept) > 0 {
			if last := kept[len(kept)-1]; last == "." || p == last || strings.HasPrefix(p, last+"/") {
				continue
			}
		}
		kept = append(kept, p)
	}
	return kept
}

// comparePaths orders as a walk does: a directory before what it holds, and before its longer-named siblings.
func comparePaths(a, b string) int {
	if a == "." || b == "." {
		return len(strings.TrimPrefix(a, ".")) - len(strings.TrimPrefix(b, "."))
	}
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

type packer struct {
	ctx     context.Context
	root    *os.Root
	tar     *tar.Writer
	rules   *rules
	skipped []string
}

// add packs a path and everything below it, and before it the directories above that are not packed yet.
func (p *packer) add(top string) error {
	if !fs.ValidPath(top) {
		return ErrEscape.Because("%q does not lie below the directory to pack", shown(top))
	}
	for i := range len(top) {
		if above := top[:i]; top[i] == '/' && p.rules.seen[above] == 0 {
			info, err := p.root.Lstat(above)
			if err != nil {
				return err
			}
			if !info.IsDir() {
				return ErrEscape.Because("%q passes through %q, which is no directory", shown(top), shown(above))
			}
			if err := p.entry(above, info); err != nil {
				return err
			}
		}
	}
	if info, err := p.root.Lstat(top); err != nil {
		return err
	} else if !info.IsDir() { // a walk would follow a link here, and only here
		return p.entry(top, info)
	}
	return fs.WalkDir(p.root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p.ctx.Err() != nil:
			return p.ctx.Err()
		case name == ".":
			return nil
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return p.entry(name, info)
	})
}

func (p *packer) entry(name string, info fs.FileInfo) error {
	h := &tar.Header{Name: name, Mode: 0o644, ModTime: time.Unix(0, 0)}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
	case mode.IsRegular():
		return p.file(h)
	case mode.Type() == fs.ModeSymlink:
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		if !inside(name, target) {
			p.skipped = append(p.skipped, name)
			return nil
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
	default:
		p.skipped = append(p.skipped, name)
		return nil
	}
	return p.header(h)
}

// file packs a regular file as it is once it is open: what the walk saw may have changed.
func (p *packer) file(h *tar.Header) error {
	// A pipe that took the file's place must not make this wait for a writer.
	f, err := p.root.OpenFile(h.Name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s changed while it was packed", h.Name)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	if err := p.header(h); err != nil {
		return err
	}
	if _, err := io.CopyN(p.tar, f, h.Size); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was packed", h.Name)
	} else if err != nil {
		return err
	}
	return p.ctx.Err()
}

func (p *packer) header(h *tar.Header) error {
	if _, _, err := p.rules.admit(h); err != nil {
		return err
	}
	return p.tar.WriteHeader(h)
}
