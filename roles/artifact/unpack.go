// Unpacking an archive that nobody vouches for.

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

	"github.com/klauspost/compress/zstd"
)

// Memory that decompression may use, in bytes.
const (
	maxWindow = 8 << 20
	maxDecode = 16 << 20
)

// Unpack writes the archive into dest, which must be missing or empty. It reads
// r to its end, so that a blob is verified before Unpack succeeds. Refused are
// paths and links that leave the tree or pass through a link, everything but
// files, directories and links, privileged mode bits, a path that appears as two
// kinds, and what exceeds the limits; the error is one of the archive's refusals
// and names the entry. After an error nothing of the archive is left in dest,
// and dest is gone if it was missing.
func Unpack(ctx context.Context, r io.Reader, dest string, limits Limits) (Contents, error) {
	made, err := prepare(dest)
	if err != nil {
		return Contents{}, err
	}
	root, err := os.OpenRoot(dest)
	if err != nil {
		return Contents{}, fmt.Errorf("unpack: %w", err)
	}
	u := &unpacker{root: root}
	contents, err := scan(ctx, r, limits, u.write)
	if err != nil {
		err = errors.Join(err, empty(root))
	}
	err = errors.Join(err, root.Close())
	if err != nil && made {
		err = errors.Join(err, os.Remove(dest))
	}
	return contents, err
}

// UnpackZstd is Unpack of what PackZstd wrote.
func UnpackZstd(ctx context.Context, r io.Reader, dest string, limits Limits) (Contents, error) {
	z, err := decompress(r)
	if err != nil {
		return Contents{}, err
	}
	defer z.Close()
	return Unpack(ctx, z, dest, limits)
}

// InspectZstd judges an archive as UnpackZstd would, and writes nothing.
func InspectZstd(ctx context.Context, r io.Reader, limits Limits) (Contents, error) {
	z, err := decompress(r)
	if err != nil {
		return Contents{}, err
	}
	defer z.Close()
	return scan(ctx, z, limits, func(entry, io.Reader) error { return nil })
}

func decompress(r io.Reader) (*zstd.Decoder, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxDecode))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return z, nil
}

// prepare makes dest, or checks that it is empty.
func prepare(dest string) (made bool, err error) {
	err = os.Mkdir(dest, 0o755)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	held, err := os.ReadDir(dest)
	if err != nil {
		return false, fmt.Errorf("unpack: %w", err)
	}
	if len(held) > 0 {
		return false, ErrDestination.Because("%s holds %q already", dest, held[0].Name())
	}
	return false, nil
}

func empty(root *os.Root) error {
	held, err := fs.ReadDir(root.FS(), ".")
	for _, e := range held {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	return err
}

// scan reads an archive to the end of r and hands on what passes the rules.
func scan(ctx context.Context, r io.Reader, limits Limits, fn func(entry, io.Reader) error) (Contents, error) {
	rules := newRules(limits)
	in := &bounded{ctx: ctx, r: r, left: rules.limits.raw()}
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		// A path that the reader itself finds unsafe is judged by the rules below.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return Contents{}, in.explain(err)
		}
		e, skip, err := rules.admit(h)
		if err != nil {
			return Contents{}, err
		}
		if skip {
			continue
		}
		if err := fn(e, t); err != nil {
			return Contents{}, in.explain(err)
		}
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return Contents{}, in.explain(err)
	}
	if in.left == rules.limits.raw() {
		return Contents{}, ErrArchive.Because("the archive cannot be read: it is empty, without even an end")
	}
	return rules.contents, nil
}

// bounded reads no more raw bytes than an archive within the limits can have,
// whatever an entry's header claims, and remembers why reading failed.
type bounded struct {
	ctx  context.Context
	r    io.Reader
	left int64
	err  error
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	switch {
	case b.ctx.Err() != nil:
		b.err = b.ctx.Err()
	case b.left < 0:
		b.err = ErrLimit.Because("the archive has more bytes than its entries may need")
	case err != nil && !errors.Is(err, io.EOF):
		b.err = err
	default:
		return n, err
	}
	return 0, b.err
}

// explain prefers the reason why reading failed to what the tar reader made of it.
func (b *bounded) explain(err error) error {
	var local *writeError
	switch {
	case b.err != nil:
		err = b.err
	case errors.As(err, &local):
		return local.err
	}
	if isOwn(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return ErrArchive.Because("the archive cannot be read: %v", err)
}

// unpacker writes entries below a root that no name can leave.
type unpacker struct{ root *os.Root }

// writeError marks a failure of the file system that is unpacked into.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (u *unpacker) write(e entry, r io.Reader) error {
	err := u.place(e, r)
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return &writeError{fmt.Errorf("unpack %q: %w", shown(e.path), err)}
	}
	return err
}

func (u *unpacker) place(e entry, r io.Reader) error {
	if e.kind == directory {
		return u.root.MkdirAll(e.path, 0o755)
	}
	if parent := path.Dir(e.path); parent != "." {
		if err := u.root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	if e.again {
		if err := u.root.Remove(e.path); err != nil {
			return err
		}
	}
	switch {
	case e.hard:
		return u.root.Link(e.target, e.path)
	case e.kind == symlink:
		return u.root.Symlink(e.target, e.path)
	}
	return u.file(e, r)
}

func (u *unpacker) file(e entry, r io.Reader) error {
	mode := fs.FileMode(0o644)
	if e.exec {
		mode = 0o755
	}
	f, err := u.root.OpenFile(e.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
