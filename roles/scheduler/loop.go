// Loops: a step under the guard, again when its time has come or its bell rings.

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/cluster"
)

// Bounds of what may fail without harm to the epoch.
const (
	patience = 5 // times in a row that a step fails before its loop ends and is started again
	// outage is how long this node may be unable to write. A failed step then ends the
	// role: with no write under way whose outcome is unknown, nothing else would. A
	// server that can be written to and refuses one statement is not left for another node.
	outage = 5 * time.Second
)

// A step does one bounded piece of work and says when the next one is due at the latest; 0 is at once.
type step func(context.Context, cluster.RoleGuard) (next time.Duration, err error)

// loop runs a step when it is due and when the bell rings, but not sooner than
// rest after the last or the loop's begin, as long as the guard is active. A failed
// step is tried again after a tick; its guard tells whether it may be.
func (s *Scheduler) loop(name string, b *bell, rest time.Duration, do step) func(context.Context, cluster.RoleGuard) error {
	return func(ctx context.Context, g cluster.RoleGuard) error {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		failed := 0
		for {
			if ctx.Err() != nil {
				return nil
			}
			if err := g.CheckActive(); err != nil {
				return err
			}
			next, err := do(ctx, g)
			switch {
			case err == nil:
				failed = 0
			case ctx.Err() != nil:
				return nil
			default:
				if ok, since := s.cfg.Store.Writable(); !ok && since >= outage {
					return actors.Stuck(fmt.Errorf("PostgreSQL could not be written to for %s: %w", since.Round(time.Second), err))
				}
				if failed++; failed >= patience || g.Check() != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				s.cfg.Logger.Warn("a scheduler step failed and changed nothing", "loop", name, "epoch", g.Epoch(), "err", err)
				next = s.cfg.Tick
			}
			if next <= 0 {
				continue
			}
			t.Reset(min(rest, next))
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			}
			t.Reset(max(0, next-rest))
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
			case <-b.rung():
			}
		}
	}
}

// bell is a hint that coalesces; the nil bell never rings.
type bell struct{ c chan struct{} }

func newBell() *bell { return &bell{c: make(chan struct{}, 1)} }

func (b *bell) ring() {
	select {
	case b.c <- struct{}{}:
	default:
	}
}

func (b *bell) rung() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.c
}
