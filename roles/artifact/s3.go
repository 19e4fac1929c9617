// The S3 store: objects in a bucket.
//
//	<prefix>/cluster                      the id of the cluster that owns the store
//	<prefix>/clock                        rewritten to learn the store's time
//	<prefix>/blobs/sha256/ab/cdef…/nonce  one copy of one blob
//
// S3 cannot delete "only if unchanged". So a copy's key is never used twice: a
// Put that renews an old blob adds a copy, and a Delete, even one that arrives
// late or twice, removes only keys that it has seen and judged. The price is one
// listing for each read.

package artifact

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/forgeyard/forgeyard/fsm"
)

// Sizes of uploads, in bytes.
const (
	spoolAbove = 1 << 20  // from here on an upload is hashed on disk instead of in memory
	wholeBelow = 16 << 20 // up to here it is sent in one request, above in parts
)

type s3Store struct {
	client *minio.Core
	close  func()
	bucket string
	prefix string // "" or ends with "/"
	spool  string
	owner  fsm.ClusterID
	admit  admission
}

// copyOf is one stored copy of a blob.
type copyOf struct {
	Blob
	key string
}

func (s *s3Store) blobs() string { return s.prefix + "blobs/sha256/" }

func (s *s3Store) folder(d Digest) string {
	h := d.hex()
	return s.blobs() + h[:2] + "/" + h[2:] + "/"
}

// parseKey reads the digest in a copy's key.
func (s *s3Store) parseKey(key string) (Digest, bool) {
	parts := strings.Split(strings.TrimPrefix(key, s.blobs()), "/")
	if len(parts) != 3 || len(parts[0]) != 2 {
		return Digest{}, false
	}
	d, err := parseHex(parts[0] + parts[1])
	return d, err == nil
}

// Put: see Store.
func (s *s3Store) Put(ctx context.Context, r io.Reader, want Want) (Blob, error) {
	if err := s.admit.pass(ctx); err != nil {
		return Blob{}, err
	}
	in := newIntake(ctx, r, want)
	body, err := s.hold(in)
	if err != nil {
		return Blob{}, err
	}
	defer body.Close()
	d, err := in.digest()
	if err != nil {
		return Blob{}, err
	}
	old, found, err := s.newest(ctx, d)
	if err != nil {
		return Blob{}, err
	}
	if found && old.Size == in.size {
		now, err := s.Now(ctx)
		if err != nil {
			return Blob{}, err
		}
		if now.Sub(old.Modified) < Fresh {
			return old.Blob, nil
		}
	}
	key := s.folder(d) + rand.Text()
	if in.size <= wholeBelow {
		opts := putOptions()
		opts.DisableContentSha256 = true // signs the hash given, instead of the body in pieces: the server checks it
		_, err = s.client.PutObject(ctx, s.bucket, key, body, in.size, "", d.hex(), opts)
	} else {
		_, err = s.client.Client.PutObject(ctx, s.bucket, key, body, in.size, putOptions())
	}
	if err != nil {
		return Blob{}, explainS3(err)
	}
	info, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return Blob{}, explainS3(err)
	}
	if info.Size != in.size {
		return Blob{}, errors.Join(ErrUnavailable.Wrap(nil, "the artifact store kept %d of %d bytes", info.Size, in.size), s.remove(ctx, key))
	}
	return Blob{Digest: d, Size: in.size, Modified: info.LastModified}, nil
}

// putOptions have each request checked by a hash of its whole body, which every
// server knows, and not by signatures between pieces of it, which some do not.
func putOptions() minio.PutObjectOptions {
	return minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true, SendContentMd5: true}
}

// held is an upload that is hashed and can be sent, and sent again.
type held interface {
	io.ReadSeeker
	io.ReaderAt
	io.Closer
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

type onDisk struct{ *os.File }

func (f onDisk) Close() error { return errors.Join(f.File.Close(), os.Remove(f.Name())) }

// hold reads an upload to its end: the key is the digest, which is known only then.
func (s *s3Store) hold(in *intake) (held, error) {
	var start bytes.Buffer
	if _, err := io.CopyN(&start, in, spoolAbove); errors.Is(err, io.EOF) {
		return inMemory{bytes.NewReader(start.Bytes())}, nil
	} else if err != nil {
		return nil, unmark(err)
	}
	f, err := os.CreateTemp(s.spool, "forgeyard-upload-*")
	if err != nil {
		return nil, explainFile(err)
	}
	if _, err = io.Copy(f, io.MultiReader(&start, in)); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(unmark(err), onDisk{f}.Close())
	}
	return onDisk{f}, nil
}

// attempts bounds how often a read looks for a copy: the one it found may be
// surplus and deleted before it is opened.
const attempts = 3

// Get: see Store.
func (s *s3Store) Get(ctx context.Context, d Digest) (io.ReadCloser, int64, error) {
	for range attempts {
		c, found, err := s.newest(ctx, d)
		if err != nil {
			return nil, 0, err
		}
		if !found {
			break
		}
		body, info, _, err := s.client.GetObject(ctx, s.bucket, c.key, minio.GetObjectOptions{})
		if err != nil {
			if isNoKey(err) {
				continue
			}
			return nil, 0, explainS3(err)
		}
		return verify(body, Blob{Digest: d, Size: info.Size}, explainS3), info.Size, nil
	}
	return nil, 0, ErrMissing.Wrap(nil, "the artifact store has no blob %s", d)
}

// Stat: see Store.
func (s *s3Store) Stat(ctx context.Context, d Digest) (Blob, error) {
	c, found, err := s.newest(ctx, d)
	if err == nil && !found {
		err = ErrMissing.Wrap(nil, "the artifact store has no blob %s", d)
	}
	return c.Blob, err
}

// newest is the copy of a blob that was stored last.
func (s *s3Store) newest(ctx context.Context, d Digest) (c copyOf, found bool, err error) {
	copies, err := s.copies(ctx, d)
	for _, other := range copies {
		if !found || other.Modified.After(c.Modified) {
			c, found = other, true
		}
	}
	return c, found, err
}

func (s *s3Store) copies(ctx context.Context, d Digest) ([]copyOf, error) {
	if err := s.admit.pass(ctx); err != nil {
		return nil, err
	}
	var all []copyOf
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.folder(d), Recursive: true}) {
		if o.Err != nil {
			return nil, explainS3(o.Err)
		}
		all = append(all, copyOf{Blob: Blob{Digest: d, Size: o.Size, Modified: o.LastModified}, key: o.Key})
	}
	return all, explainContext(ctx)
}

// List: see Store.
func (s *s3Store) List(ctx context.Context, after Digest, fn func(Blob) error) error {
	if err := s.admit.pass(ctx); err != nil {
		return err
	}
	opts := minio.ListObjectsOptions{Prefix: s.blobs(), Recursive: true}
	if !after.IsZero() {
		opts.StartAfter = s.folder(after)
	}
	var b Blob // the copies of a blob follow each other
	for o := range s.client.ListObjectsIter(ctx, s.bucket, opts) {
		if o.Err != nil {
			return explainS3(o.Err)
		}
		d, ok := s.parseKey(o.Key)
		switch {
		case !ok, d.Compare(after) <= 0:
			continue
		case d == b.Digest:
			b.Size += o.Size
			b.Modified = later(b.Modified, o.LastModified)
			continue
		}
		if !b.Digest.IsZero() {
			if err := fn(b); err != nil {
				return err
			}
		}
		b = Blob{Digest: d, Size: o.Size, Modified: o.LastModified}
	}
	if err := explainContext(ctx); err != nil || b.Digest.IsZero() {
		return err
	}
	return fn(b)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Now: see Store.
func (s *s3Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.admit.pass(ctx); err != nil {
		return time.Time{}, err
	}
	return s.now(ctx)
}

func (s *s3Store) now(ctx context.Context) (time.Time, error) {
	key := s.prefix + "clock"
	if _, err := s.client.Client.PutObject(ctx, s.bucket, key, strings.NewReader("now\n"), 4, putOptions()); err != nil {
		return time.Time{}, explainS3(err)
	}
	info, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return time.Time{}, explainS3(err)
	}
	return info.LastModified, nil
}

// Health: see Store.
func (s *s3Store) Health(ctx context.Context) error {
	if err := s.admit.pass(ctx); err != nil {
		return err
	}
	if _, err := s.now(ctx); err != nil {
		return err
	}
	return s.checkMarker(ctx)
}

// Close: see Store.
func (s *s3Store) Close() error {
	s.close()
	return nil
}
