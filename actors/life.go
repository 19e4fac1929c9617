// life: one actor and the goroutines it started, followed to their common end.

package actors

import (
	"runtime/debug"
	"sync"
)

// life ends when its actor has stopped and every goroutine has returned. The
// last one out runs ended.
type life struct {
	mu    sync.Mutex
	open  int // the actor counts as one
	wg    *sync.WaitGroup
	ended func()
}

func newLife(wg *sync.WaitGroup, ended func()) *life {
	wg.Add(1)
	return &life{open: 1, wg: wg, ended: ended}
}

// start runs f on a goroutine; false when this life has ended. f must not panic.
func (l *life) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == 0 {
		return false
	}
	l.open++
	l.wg.Add(1)
	go func() {
		defer l.leave()
		f()
	}()
	return true
}

// leave is called once by the actor, and by every goroutine as its last act.
func (l *life) leave() {
	defer l.wg.Done()
	l.mu.Lock()
	l.open--
	last := l.open == 0
	l.mu.Unlock()
	if last {
		l.ended()
	}
}

// protect turns a panic of f into an error.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return f()
}
