// How the S3 store deletes: only copies that it has listed and judged.

package artifact

import (
	"context"
	"time"

	"github.com/minio/minio-go/v7"
)

// Delete: see Store.
func (s *s3Store) Delete(ctx context.Context, d Digest, notAfter time.Time) (bool, error) {
	copies, err := s.copies(ctx, d)
	if err != nil {
		return false, err
	}
	gone := true
	for _, c := range copies {
		if c.Modified.After(notAfter) {
			gone = false
			continue
		}
		if err := s.remove(ctx, c.key); err != nil {
			return false, err
		}
	}
	return gone, nil
}

// remove deletes one copy. The client may send the request more than once, which
// is harmless: no other copy will ever have this key.
func (s *s3Store) remove(ctx context.Context, key string) error {
	err := s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if err != nil && !isNoKey(err) {
		return explainS3(err)
	}
	return nil
}

// Tidy: see Store. It aborts uploads in parts that nobody has finished, and
// removes old copies of blobs that have a newer one.
func (s *s3Store) Tidy(ctx context.Context, notAfter time.Time) (int, error) {
	if err := s.admit.pass(ctx); err != nil {
		return 0, err
	}
	aborted, err := s.abortUploads(ctx, notAfter)
	if err != nil {
		return aborted, err
	}
	removed, err := s.removeSurplus(ctx, notAfter)
	return aborted + removed, err
}

func (s *s3Store) abortUploads(ctx context.Context, notAfter time.Time) (aborted int, err error) {
	listing, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing when this returns early
	for u := range s.client.ListIncompleteUploads(listing, s.bucket, s.blobs(), true) {
		if u.Err != nil {
			if minio.ToErrorResponse(u.Err).Code == minio.NoSuchUpload { // some servers have no list of none
				return aborted, nil
			}
			return aborted, explainS3(u.Err)
		}
		if u.Initiated.After(notAfter) {
			continue
		}
		if err := s.client.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID); err != nil {
			return aborted, explainS3(err)
		}
		aborted++
	}
	return aborted, explainContext(ctx)
}

// removeSurplus keeps the newest copy of each blob, whatever its age, and every
// copy that a Put may still rely on.
func (s *s3Store) removeSurplus(ctx context.Context, notAfter time.Time) (removed int, err error) {
	var newest copyOf
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.blobs(), Recursive: true}) {
		if o.Err != nil {
			return removed, explainS3(o.Err)
		}
		d, ok := s.parseKey(o.Key)
		if !ok {
			continue
		}
		c := copyOf{Blob: Blob{Digest: d, Size: o.Size, Modified: o.LastModified}, key: o.Key}
		if d != newest.Digest {
			newest = c
			continue
		}
		if c.Modified.After(newest.Modified) {
			newest, c = c, newest
		}
		if c.Modified.After(notAfter) {
			continue
		}
		if err := s.remove(ctx, c.key); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, explainContext(ctx)
}
