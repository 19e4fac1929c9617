// Streams: answers that may break off and go on at another daemon.

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Bounds of the pauses between attempts to go on with a stream, once every endpoint was tried in vain.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// Stream is an answer that is read over as many connections as it takes.
type Stream struct {
	// Request says what to ask for. It is called again for each connection, and
	// so can ask for what has not been read yet.
	Request func() (path string, query url.Values, header http.Header)
	// Read reads the answer of one connection; nil ends the stream. An error of
	// the reader, or one made by Broken, makes the next endpoint go on; any other ends the stream.
	Read func(*http.Response, io.Reader) error
	// Quiet is after which silence a connection is left for the next endpoint:
	// a daemon that hangs says nothing.
	Quiet time.Duration
	// Patience is how long no daemon may serve before the stream fails.
	Patience time.Duration
}

// brokenError is an answer that ended too early.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// Broken marks an answer as broken off: the next endpoint may go on.
func Broken(format string, args ...any) error { return &brokenError{fmt.Errorf(format, args...)} }

// Follow reads a stream to its end, or until ctx ends. It goes on at the next
// endpoint when one is down, breaks off, falls silent, or cannot serve now.
func (c *Client) Follow(ctx context.Context, s Stream) error {
	served, pause := time.Now(), minPause
	order := c.from()
	for next, failures := 0, 0; ; next++ {
		e := order[next%len(order)]
		progress, err := s.once(ctx, e)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !resumable(err):
			return err
		}
		if failures++; progress {
			served, pause, failures = time.Now(), minPause, 0
		}
		if time.Since(served) > s.Patience || failures >= len(c.endpoints) && !passing(err) {
			return abandoned(e.name, err)
		}
		if failures > 0 && failures%len(c.endpoints) == 0 {
			if err := wait(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, maxPause)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// resumable tells what another connection may do better from an answer that will not change.
func resumable(err error) bool {
	var broken *brokenError
	var failed *Error
	if errors.As(err, &broken) {
		return true
	}
	return errors.As(err, &failed) && (failed.Status == 0 || failed.Status >= 500 || failed.Status == http.StatusTooManyRequests)
}

// passing tells an outage from a lack that every endpoint may have, and keeps.
func passing(err error) bool {
	var failed *Error
	return !errors.As(err, &failed) || failed.Status == 0 || failed.Problem.Kind != "Request" || failed.Status == http.StatusTooManyRequests
}

// abandoned is the error of a stream that nobody goes on with.
func abandoned(endpoint string, err error) error {
	var failed *Error
	if errors.As(err, &failed) && failed.Status != 0 {
		return failed
	}
	return &Error{Err: err, Problem: access.Problem{
		Code: CodeUnreachable, Kind: "TransportFailure", Retryable: true,
		Message: "no daemon goes on with the stream; the last one tried, " + endpoint + ": " + reason(err),
		Hint:    "is a daemon running? name more of them with --endpoint or FORGEYARD_ENDPOINTS",
	}}
}

// once reads over one connection. Progress means that something new was read,
// or that a daemon served and there was nothing to read.
func (s Stream) once(ctx context.Context, e *endpoint) (progress bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(ReadTimeout, func() { cancel(errSilent) }) // until the answer begins
	defer watch.Stop()
	defer func() {
		if broken := (*brokenError)(nil); errors.As(err, &broken) && errors.Is(context.Cause(ctx), errSilent) {
			err = &brokenError{errSilent}
		}
	}()
	path, query, header := s.Request()
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
	if err != nil {
		return false, fmt.Errorf("request: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return false, &brokenError{err}
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return false, &brokenError{err}
		}
		return false, refused(resp, answer)
	}
	watch.Stop()
	b := &body{Reader: resp.Body, watch: watch, quiet: s.Quiet}
	err = s.Read(resp, b)
	return b.read > 0 || errors.Is(context.Cause(ctx), errSilent), err
}

// body is the part of an answer that comes over one connection.
type body struct {
	io.Reader
	watch *time.Timer // ends the connection
	quiet time.Duration
	read  int64
}

func (b *body) Read(p []byte) (int, error) {
	b.watch.Reset(b.quiet) // only while waiting: a slow reader is not the daemon's silence
	n, err := b.Reader.Read(p)
	b.watch.Stop()
	b.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &brokenError{err}
	}
	return n, err
}
