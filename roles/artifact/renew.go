// Naming a stored blob again without having its bytes.

package artifact

import (
	"context"
	"io"
	"time"
)

// Renewable is what Renew needs of a Store.
type Renewable interface {
	Put(ctx context.Context, r io.Reader, want Want) (Blob, error)
	Get(ctx context.Context, d Digest) (io.ReadCloser, int64, error)
	Stat(ctx context.Context, d Digest) (Blob, error)
	Now(ctx context.Context) (time.Time, error)
}

// Renew protects a stored blob for Fresh, as a Put of its bytes would. Call it
// before a row is to name a digest that came without bytes. ErrMissing when the
// blob is gone: then the bytes must be sent.
func Renew(ctx context.Context, s Renewable, d Digest) (Blob, error) {
	b, err := s.Stat(ctx, d)
	if err != nil {
		return Blob{}, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return Blob{}, err
	}
	if now.Sub(b.Modified) < Fresh {
		return b, nil
	}
	r, _, err := s.Get(ctx, d)
	if err != nil {
		return Blob{}, err
	}
	defer r.Close()
	return s.Put(ctx, r, Want{Digest: d})
}
