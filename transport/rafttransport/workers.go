// Workers: counts the calls and handlers under way, so that Close can wait for them.

package rafttransport

import "sync"

// workers is a wait group that refuses new work once it is being waited for.
type workers struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func (w *workers) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Add(1)
	return true
}

func (w *workers) end() { w.wg.Done() }

// close refuses new work and waits for what is under way.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
