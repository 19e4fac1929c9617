// Sources: a directory packed the same way each time, and uploaded to any daemon.

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// uploadSource packs a directory, stores it, and returns its digest.
func (a *app) uploadSource(ctx context.Context, c *client.Client, dir string) (digest string, err error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", usagef("give a directory", "--source %s: it is no directory that can be read", dir)
	}
	f, err := os.CreateTemp("", "forgeyard-source-*.tar.zst")
	if err != nil {
		return "", fmt.Errorf("pack the source: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	hash := sha256.New()
	packed, err := untilInterrupted(ctx, func() (artifact.Packed, error) { // the directory may hang
		return artifact.PackZstd(ctx, dir, nil, artifact.Limits{}, io.MultiWriter(f, hash))
	})
	if err != nil {
		return "", err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return "", fmt.Errorf("pack the source: %w", err)
	}
	if size > runner.MaxSource {
		return "", artifact.ErrTooLarge.Because("the source has %s packed, more than %s", bytesText(size), bytesText(runner.MaxSource))
	}
	a.note("source %s: %d %s, %s, %s packed", dir, packed.Entries, entries(packed.Entries), bytesText(packed.Bytes), bytesText(size))
	if n := len(packed.Skipped); n > 0 {
		a.note("left out: %s", strings.Join(packed.Skipped[:min(n, 5)], ", ")+more(n-5))
	}
	var doc runner.SourceDocument
	err = c.Upload(ctx, client.Upload{
		Path: "/v1/sources", Size: size,
		Header: http.Header{
			"Content-Type":   {"application/x-tar+zstd"},
			"Content-Digest": {"sha-256=:" + base64.StdEncoding.EncodeToString(hash.Sum(nil)) + ":"},
			"Expect":         {"100-continue"}, // a daemon that refuses does so before the bytes
		},
		Open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, size)), nil },
	}, &doc)
	if err != nil {
		return "", err
	}
	if want := artifact.Digest(hash.Sum(nil)).String(); doc.Digest != want {
		return "", artifact.ErrMismatch.Because("the daemon stored the source as %s, not as %s", clean(doc.Digest), want)
	}
	return doc.Digest, nil
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
