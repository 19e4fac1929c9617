// Package artifact keeps bytes: the content-addressed store, deterministic archives, logs and their garbage collection.
//
// DESIGN.md tells why a stored blob that is about to be referenced cannot be collected.
package artifact

import (
	"context"
	"io"
	"time"
)

// Blob is what a store knows of one stored sequence of bytes.
type Blob struct {
	Digest   Digest
	Size     int64     // bytes
	Modified time.Time // of the newest copy, by the store's clock
}

// Want says what a Put expects of the bytes it is given.
type Want struct {
	Digest Digest // the zero digest expects nothing
	Limit  int64  // most bytes; 0 = no limit
}

// Fresh is how long a blob stays protected at least after a Put of it returned:
// a Put that finds the blob stored longer ago than this stores it anew. What a
// Put returned must be referenced by a committed row within this time.
const Fresh = time.Hour

// Store is the content-addressed store that all daemons share. Its methods are
// safe for concurrent use by any number of daemons. Errors: ErrUnavailable and
// ErrFull (Retryable), ErrCorrupt, ErrMissing, ErrOtherCluster, ErrRefused.
type Store interface {
	// Put stores what r yields, durably, before it returns; storing what is
	// stored already is a success. Beside the store's errors it returns those
	// of r unchanged, ErrTooLarge and ErrMismatch; then nothing was stored.
	Put(ctx context.Context, r io.Reader, want Want) (Blob, error)
	// Get opens a blob and tells its size in bytes. Reading verifies the hash:
	// bytes may be used only once Read has answered io.EOF, for damage comes
	// as ErrCorrupt in its place. ctx must stay alive while reading.
	Get(ctx context.Context, d Digest) (io.ReadCloser, int64, error)
	// Stat describes a blob without reading it.
	Stat(ctx context.Context, d Digest) (Blob, error)
	// Delete removes the copies of a blob that were last modified at or before
	// notAfter, and reports whether the blob is gone. A missing blob is gone.
	Delete(ctx context.Context, d Digest, notAfter time.Time) (gone bool, err error)
	// List calls fn for each blob with a digest above after, in order, until fn fails.
	List(ctx context.Context, after Digest, fn func(Blob) error) error
	// Tidy removes what interrupted calls left behind at or before notAfter, and counts it.
	Tidy(ctx context.Context, notAfter time.Time) (int, error)
	// Now is the store's own clock, the one behind Blob.Modified.
	Now(ctx context.Context) (time.Time, error)
	// Health reports whether the store answers and belongs to this cluster.
	Health(ctx context.Context) error
	// Close ends idle connections; no call may follow.
	Close() error
}
