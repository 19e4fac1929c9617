// Package tasks lets what closes wait for everything that it began.
package tasks

import "sync"

// Group is a wait group that begins nothing new once it is to end. The zero value is ready.
type Group struct {
	mu     sync.Mutex
	ending bool
	wg     sync.WaitGroup
}

// Begin counts one task; false when the group is to end. Each true needs one End.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return false
	}
	g.wg.Add(1)
	return true
}

// End counts the end of a task.
func (g *Group) End() { g.wg.Done() }

// Go runs f as a task on a goroutine of its own; false when the group is to end.
func (g *Group) Go(f func()) bool {
	if !g.Begin() {
		return false
	}
	go func() {
		defer g.End()
		f()
	}()
	return true
}

// Refuse lets no new task begin.
func (g *Group) Refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending = true
}

// Wait lets no new task begin and returns when all have ended.
func (g *Group) Wait() {
	g.Refuse()
	g.wg.Wait()
}
