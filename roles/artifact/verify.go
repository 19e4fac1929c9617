// Hashing while bytes pass: what is stored gets its digest, what is read must have it.

package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
)

// intake reads what a Put is given: it hashes, counts, keeps to the limit and to the context.
type intake struct {
	ctx  context.Context
	r    io.Reader
	want Want
	hash hash.Hash
	size int64
}

func newIntake(ctx context.Context, r io.Reader, want Want) *intake {
	return &intake{ctx: ctx, r: r, want: want, hash: sha256.New()}
}

func (i *intake) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, &sourceError{err}
	}
	n, err := i.r.Read(p)
	i.size += int64(n)
	i.hash.Write(p[:n])
	if i.want.Limit > 0 && i.size > i.want.Limit {
		return 0, &sourceError{ErrTooLarge.Because("more than the allowed %d bytes", i.want.Limit)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, &sourceError{err}
	}
	return n, err
}

// digest is the digest of everything read; ErrMismatch unless it is the wanted one.
func (i *intake) digest() (d Digest, err error) {
	i.hash.Sum(d[:0])
	if !i.want.Digest.IsZero() && d != i.want.Digest {
		return d, ErrMismatch.Because("the bytes have the digest %s, not the promised %s", d, i.want.Digest)
	}
	return d, nil
}

// sourceError marks a failure of the side that gives the bytes, not of the store.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// unmark tells a failure of the source from one of the file system that takes the bytes.
func unmark(err error) error {
	var source *sourceError
	if errors.As(err, &source) {
		return source.err
	}
	return explainFile(err)
}

// verifier passes a blob's bytes on and answers ErrCorrupt instead of io.EOF
// when they were not the blob's.
type verifier struct {
	io.ReadCloser
	digest  Digest
	size    int64 // that the store claims
	hash    hash.Hash
	read    int64
	explain func(error) error // of errors while reading
}

func verify(r io.ReadCloser, b Blob, explain func(error) error) *verifier {
	return &verifier{ReadCloser: r, digest: b.Digest, size: b.Size, hash: sha256.New(), explain: explain}
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.read += int64(n)
	v.hash.Write(p[:n])
	switch {
	case errors.Is(err, io.EOF):
		if Digest(v.hash.Sum(nil)) != v.digest {
			return n, ErrCorrupt.Wrap(nil, "blob %s is damaged: its %d bytes have another digest", v.digest, v.read)
		}
	case err != nil:
		return n, v.explain(err)
	}
	return n, err
}

// ReadAll reads a blob of at most limit bytes whole, verified.
func ReadAll(ctx context.Context, s Store, d Digest, limit int64) ([]byte, error) {
	r, size, err := s.Get(ctx, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > limit {
		return nil, ErrTooLarge.Because("blob %s has %d bytes, more than the expected %d", d, size, limit)
	}
	b := make([]byte, 0, size+1) // one more, so that the last Read finds the end without growing
	for {
		if len(b) == cap(b) {
			return nil, ErrCorrupt.Wrap(nil, "blob %s is damaged: it has more than its %d bytes", d, size)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
