// Tasks: every goroutine of an endpoint belongs to it, and Close waits for all of them.

package transport

import "sync"

// tasks is a wait group that refuses new work once it is being waited for.
type tasks struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// add counts one task; false when the endpoint is closing.
func (t *tasks) add() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	return true
}

func (t *tasks) done() { t.wg.Done() }

// start runs f in a goroutine of the endpoint; false when it is closing.
func (t *tasks) start(f func()) bool {
	if !t.add() {
		return false
	}
	go func() {
		defer t.done()
		f()
	}()
	return true
}

// refuse lets no new task begin.
func (t *tasks) refuse() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}

func (t *tasks) wait() { t.wg.Wait() }
