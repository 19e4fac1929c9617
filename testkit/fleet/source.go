// A source tree for a run: packed, uploaded, named by its digest.

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/forgeyard/forgeyard/roles/artifact"
)

// Upload packs a directory, gives it to the first running daemon and returns
// the digest under which a run names it.
func (f *Fleet) Upload(ctx context.Context, dir string) (digest string, err error) {
	for _, n := range f.Nodes() {
		if n.State() == "running" {
			return n.upload(ctx, dir)
		}
	}
	return "", fmt.Errorf("upload %s: no daemon runs", dir)
}

func (n *Node) upload(ctx context.Context, dir string) (string, error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := artifact.PackZstd(ctx, dir, nil, artifact.Limits{}, w)
		packed <- err
		w.CloseWithError(err)
	}()
	defer func() { <-packed }()
	defer r.Close() // lets the packing go when the daemon refused
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Endpoint()+"/v1/sources", r)
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/zstd")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("upload %s: %w", dir, err)
	}
	defer answer.Body.Close()
	var stored struct{ Digest string }
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		return "", fmt.Errorf("upload %s to %s: %w", dir, n.Name, err)
	}
	return stored.Digest, nil
}
