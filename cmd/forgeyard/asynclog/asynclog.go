// Package asynclog writes a process's log in the background: a log that nobody reads, as a full pipe, a terminal that is
// held or a disk that hangs, stops nothing but itself.
package asynclog

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// queued is how many lines wait for their reader at most; further ones are dropped.
const queued = 4096

// Writer passes on what is written, a line at a time. Its methods may be called at any time.
type Writer struct {
	out   io.Writer
	lines chan line
	lost  atomic.Uint64
	said  func(lost uint64)
	end   sync.Once
}

// line is a line to write, or a mark in the queue that is closed when it is reached.
type line struct {
	text []byte
	mark chan struct{}
	last bool
}

// New starts a writer to out. When lines were dropped and out takes lines again, lost is
// told how many; it may log.
func New(out io.Writer, lost func(lines uint64)) *Writer {
	w := &Writer{out: out, lines: make(chan line, queued), said: lost}
	go w.run()
	return w
}

// Write queues one line or drops it. It never waits and never fails.
func (w *Writer) Write(text []byte) (int, error) {
	select {
	case w.lines <- line{text: append([]byte(nil), text...)}:
	default:
		w.lost.Add(1)
	}
	return len(text), nil
}

// Fd is the descriptor behind it, which tells a terminal from what is none; an invalid
// one when there is none.
func (w *Writer) Fd() uintptr {
	if f, ok := w.out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Read reads nothing: who looks for a terminal asks for a file that can be read.
func (w *Writer) Read([]byte) (int, error) { return 0, io.EOF }

// Flush waits until what was written so far is out, but no longer than bound.
func (w *Writer) Flush(bound time.Duration) { w.await(bound, false) }

// Close is Flush, after which what is written goes nowhere.
func (w *Writer) Close(bound time.Duration) {
	w.end.Do(func() { w.await(bound, true) })
}

func (w *Writer) await(bound time.Duration, last bool) {
	late := time.NewTimer(bound)
	defer late.Stop()
	mark := make(chan struct{})
	select {
	case w.lines <- line{mark: mark, last: last}:
	case <-late.C:
		return
	}
	select {
	case <-mark:
	case <-late.C:
	}
}

func (w *Writer) run() {
	for l := range w.lines {
		if l.mark != nil {
			close(l.mark)
			if l.last {
				return
			}
			continue
		}
		_, _ = w.out.Write(l.text) // there is nowhere to tell
		if n := w.lost.Load(); n > 0 && len(w.lines) < queued/2 {
			w.lost.Add(^(n - 1)) // minus n
			w.said(n)
		}
	}
}
