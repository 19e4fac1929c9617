// A stream of frames in memory.

package runnertest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// Pipe returns the two ends of a link; the first one is the agent's. Closing one
// ends both. Every transfer stream that the agent opens is given to serve; nil refuses them.
func Pipe(serve func(runner.Frames)) (agent runner.Uplink, daemon runner.Link) {
	a, b := framePipe()
	return uplink{Link: runner.NewLink(a), open: func() (runner.Frames, error) {
		if serve == nil {
			return nil, errClosed
		}
		near, far := framePipe()
		serve(far)
		return near, nil
	}}, runner.NewLink(b)
}

type uplink struct {
	runner.Link
	open func() (runner.Frames, error)
}

// Open opens a transfer stream.
func (u uplink) Open(context.Context) (runner.Frames, error) { return u.open() }

func framePipe() (a, b *end) {
	ab, ba := newWay(), newWay()
	return &end{out: ab, in: ba}, &end{out: ba, in: ab}
}

// way is one direction: what was written before its end is still delivered.
type way struct {
	frames chan []byte
	ended  chan struct{}
	once   sync.Once
}

func newWay() *way { return &way{frames: make(chan []byte, 64), ended: make(chan struct{})} }

func (w *way) end() { w.once.Do(func() { close(w.ended) }) }

type end struct{ out, in *way }

var errClosed = errors.New("the stream is closed")

// WriteFrame queues a copy of the frame.
func (e *end) WriteFrame(ctx context.Context, b []byte) error {
	select {
	case <-e.out.ended:
		return errClosed
	default:
	}
	select {
	case e.out.frames <- append([]byte(nil), b...):
		return nil
	case <-e.out.ended:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReadFrame returns the next frame, io.EOF after the last.
func (e *end) ReadFrame(ctx context.Context) ([]byte, error) {
	select {
	case b := <-e.in.frames:
		return b, nil
	default:
	}
	select {
	case b := <-e.in.frames:
		return b, nil
	case <-e.in.ended:
		select { // both may be ready
		case b := <-e.in.frames:
			return b, nil
		default:
			return nil, io.EOF
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends both directions.
func (e *end) Close() {
	e.out.end()
	e.in.end()
}
