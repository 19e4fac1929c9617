// A role that can be watched: it raises, reconciles and writes, and one of its loops ignores its context for a while.

package actorchaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// deafness is the longest time for which the deaf loop ignores its context.
const deafness = 700 * time.Millisecond

// The loops of a worker.
const (
	loopWrites  = "writes"
	loopDeaf    = "deaf"
	loopBrittle = "brittle"
	loops       = 3
)

// worker is one role under observation.
type worker struct {
	role   fsm.Role
	breaks chan struct{} // each value makes the brittle loop panic

	mu      sync.Mutex
	rng     *rand.Rand
	guard   cluster.RoleGuard // the newest
	running map[fsm.Epoch]int
	overlap bool
	writes  []fsm.Epoch // the epochs of the writes that passed the guard, in order
	refused int
	early   bool // a context ended before its guard was inactive
	deaf    bool // the deaf loop always takes the whole time
	above   bool // the next raise finds the fence above its epoch
}

func newWorker(role fsm.Role, rng *rand.Rand) *worker {
	return &worker{role: role, rng: rng, breaks: make(chan struct{}), running: map[fsm.Epoch]int{}}
}

func (w *worker) spec() actors.RoleSpec {
	loop := func(name string, run func(context.Context, cluster.RoleGuard) error) actors.Loop {
		return actors.Loop{Name: name, Run: func(ctx context.Context, g cluster.RoleGuard) error {
			w.enter(g.Epoch())
			defer w.leave(g.Epoch())
			return run(ctx, g)
		}}
	}
	return actors.RoleSpec{
		Role: w.role,
		Raise: func(ctx context.Context, g cluster.RoleGuard) error {
			w.take(g)
			if err := g.CheckGranted(); err != nil {
				return err
			}
			if w.fenced() {
				g.Lost(cluster.ErrFenced)
				return cluster.ErrFenced
			}
			return pause(ctx, w.draw(20*time.Millisecond))
		},
		Reconcile: func(ctx context.Context, g cluster.RoleGuard) (string, error) {
			if err := pause(ctx, w.draw(20*time.Millisecond)); err != nil {
				return "", err
			}
			return "nothing to do", w.write(g, g.Check)
		},
		Loops: []actors.Loop{loop(loopWrites, w.writing), loop(loopDeaf, w.ignoring), loop(loopBrittle, w.breaking)},
	}
}

// writing writes until its guard or its context ends.
func (w *worker) writing(ctx context.Context, g cluster.RoleGuard) error {
	for {
		if err := w.write(g, g.CheckActive); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond+w.draw(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

// ignoring goes on trying to write for a while after its context has ended.
func (w *worker) ignoring(ctx context.Context, g cluster.RoleGuard) error {
	<-ctx.Done()
	w.mu.Lock()
	always := w.deaf
	w.early = w.early || g.State() != cluster.GuardRevoked
	w.mu.Unlock()
	longest := deafness
	if !always {
		longest = w.draw(deafness)
	}
	for begun := time.Now(); time.Since(begun) < longest; {
		_ = w.write(g, g.CheckActive)
		<-time.After(50 * time.Millisecond)
	}
	return nil
}

var errBroken = errors.New("the loop breaks")

func (w *worker) breaking(ctx context.Context, _ cluster.RoleGuard) error {
	select {
	case <-w.breaks:
		panic(errBroken)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// breakLoop makes the brittle loop panic, if it runs now.
func (w *worker) breakLoop() bool {
	select {
	case w.breaks <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *worker) write(g cluster.RoleGuard, check func() error) error {
	err := check()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refused++
		return err
	}
	w.writes = append(w.writes, g.Epoch())
	return nil
}

func (w *worker) take(g cluster.RoleGuard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guard = g
}

func (w *worker) held() cluster.RoleGuard {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.guard
}

func (w *worker) draw(most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(most)))
}

func (w *worker) enter(e fsm.Epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[e]++
	w.overlap = w.overlap || len(w.running) > 1
}

func (w *worker) leave(e fsm.Epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[e]--; w.running[e] == 0 {
		delete(w.running, e)
	}
}

// runsOnly reports whether all loops of the epoch run, and no others.
func (w *worker) runsOnly(e fsm.Epoch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running) == 1 && w.running[e] == loops
}

func (w *worker) beDeaf() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = true
}

// refuseRaise makes the next raise fail.
func (w *worker) refuseRaise() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.above = true
}

func (w *worker) fenced() (yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	yes, w.above = w.above, false
	return yes
}

func (w *worker) refusals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// requireSound: loops of two epochs never ran at a time, and no write of an old
// epoch came after one of a newer.
func (w *worker) requireSound(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.False(t, w.overlap, "%s: loops of two epochs ran at a time", w.role)
	require.False(t, w.early, "%s: a context ended before its guard was inactive", w.role)
	require.Empty(t, w.running, "%s: loops are left", w.role)
	require.NotEmpty(t, w.writes, "%s never wrote: the test shows nothing", w.role)
	require.IsNonDecreasing(t, w.writes, w.role)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
