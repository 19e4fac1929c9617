// Hints: one goroutine that turns changed views, and rarely the passing of time, into ticks.

package actors

import (
	"context"
	"time"
)

// startHints starts the hint goroutine; cancelHints ends it and Stop waits for
// it. It never blocks on an actor: a mailbox holds at most one tick (§288).
func (s *System) startHints() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancelHints = cancel
	trees, stopTrees := s.cfg.Trees.Changes()
	views, stopViews := s.cfg.Backend.Changes()
	s.work.Go(func() {
		defer stopTrees()
		defer stopViews()
		s.hint(ctx, trees, views)
	})
}

func (s *System) hint(ctx context.Context, trees, views <-chan struct{}) {
	reload := time.NewTicker(s.cfg.Reload)
	defer reload.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-trees:
			if !open {
				trees = nil // its source closed; reloading goes on
			}
			s.send(pathWatcher, &tick{})
		case _, open := <-views:
			if !open {
				views = nil
			}
			s.send(pathLeader, &tick{})
		case <-reload.C:
			s.send(pathCoordination, &tick{})
			s.send(pathLeader, &tick{})
			s.send(pathWatcher, &tick{})
			if s.cfg.Reconciler != nil {
				s.send(pathReconciler, &tick{})
			}
		}
	}
}
