// Executor: how an agent runs one attempt, and the bounded tail of its output.

package runner

import (
	"context"
	"io"
	"sync"
)

// Task is one attempt as the executor sees it.
type Task struct {
	Lease   string
	Run     string
	Job     string
	Attempt int
	Steps   []Step // at least one
	Env     map[string]string
	Dir     string // fresh and its own; the steps start in it
	// Beside Dir: the directory that holds all of the attempt, whose size is
	// bounded, and its home and temporary directories; empty means Dir.
	Root, Home, Temp string
	Guard            string    // a file to hold a shared lock on while anything of the task runs; empty: none
	Life             *Lifeline // may be nil
}

func (t Task) root() string { return or(t.Root, t.Dir) }

// Exit is how a task ended. All of it is zero when the task was killed on demand.
type Exit struct {
	Code   *int   // exit status of the last step that ran; nil when it did not end by itself
	Signal string // the signal that ended it, if one did
	Step   string // the name of that step
	Limit  string // why the task was killed although nobody asked for it: the limit it broke
	Late   bool   // it was killed because its Lifeline's deadline had passed
	Err    error  // it could not be started
}

// Executor runs tasks. Run returns only when nothing of the task runs any more;
// when ctx ends it makes that happen. It may be called from many goroutines.
type Executor interface {
	Run(ctx context.Context, t Task, output io.Writer) Exit
}

// ExecutorFunc is an in-process executor: no process is started, so a
// simulated fleet can run tasks in virtual time.
type ExecutorFunc func(ctx context.Context, t Task, output io.Writer) Exit

// Run calls f.
func (f ExecutorFunc) Run(ctx context.Context, t Task, output io.Writer) Exit {
	return f(ctx, t, output)
}

// tail keeps the last bytes written to it and counts all of them, so that a
// flood of output costs neither memory nor a slow reader.
type tail struct {
	mu    sync.Mutex
	limit int
	buf   []byte // at most 2*limit, so that trimming is rare
	total int64
}

func newTail(limit int) *tail { return &tail{limit: limit} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	if n > t.limit {
		p = p[n-t.limit:]
	}
	if len(t.buf)+len(p) > 2*t.limit {
		keep := t.buf[max(0, len(t.buf)-t.limit):]
		t.buf = append(t.buf[:0], keep...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// Bytes returns a copy of the last limit bytes.
func (t *tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]byte(nil), t.buf[max(0, len(t.buf)-t.limit):]...)
}

// Total is how many bytes were ever written.
func (t *tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
