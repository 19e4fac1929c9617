// Uploads: a body that is no document, sent again from its beginning when a daemon is lost on the way.

package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// uploadPause is after which time without a byte taken, or, access.StoreTime later, without an answer after the last
// one, a daemon is given up.
const uploadPause = 30 * time.Second

// Upload is a body of a known size.
type Upload struct {
	Path   string
	Header http.Header
	Size   int64
	Open   func() (io.ReadCloser, error) // called again for each endpoint that is tried
}

// Upload sends a body whose repetition is harmless and reads the answer into out.
func (c *Client) Upload(ctx context.Context, u Upload, out any) error {
	return c.each(ctx, true, func(e *endpoint) error {
		r, err := u.Open()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watch := time.AfterFunc(uploadPause, func() { cancel(errSilent) })
		defer watch.Stop()
		return e.call(ctx, request{method: http.MethodPost, path: u.Path, header: u.Header, stream: &watched{ReadCloser: r, watch: watch, left: u.Size, size: u.Size}, size: u.Size}, out)
	})
}

// errSilent is why a call ended whose daemon was given up.
var errSilent = errors.New("the daemon is silent")

// watched puts the end of an upload off for as long as bytes are taken.
type watched struct {
	io.ReadCloser
	watch      *time.Timer
	left, size int64 // bytes not taken yet, and of all
}

func (w *watched) Read(p []byte) (int, error) {
	w.watch.Reset(uploadPause)
	n, err := w.ReadCloser.Read(p)
	if w.left -= int64(n); w.left <= 0 {
		w.watch.Reset(uploadPause + access.StoreTime(w.size))
	}
	return n, err
}
