// Uploads: a body that is no document, sent again from its beginning when a daemon is lost on the way.

package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// uploadPause is after which time without a byte taken, or without an answer after the last one, a daemon is given up.
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
		return e.call(ctx, request{method: http.MethodPost, path: u.Path, header: u.Header, stream: &watched{r, watch}, size: u.Size}, out)
	})
}

// errSilent is why a call ended whose daemon was given up.
var errSilent = errors.New("the daemon is silent")

// watched puts the end of an upload off for as long as bytes are taken.
type watched struct {
	io.ReadCloser
	watch *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	w.watch.Reset(uploadPause)
	return w.ReadCloser.Read(p)
}
