// A role's loop: restarted inside its epoch with back-off, until its guard ends or its budget is spent.

package actors

import (
	"errors"
	"fmt"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
)

var errLoopReturned = errors.New("the loop returned while the role is active")

// runLoop runs a loop on its one goroutine, so a restart can only follow the
// end of the run before it.
func (t *tree) runLoop(g cluster.RoleGuard, loop Loop) {
	rec := &record{
		path: t.path() + "/" + loop.Name, parent: t.path(), kind: KindLoop, role: t.role(), epoch: t.epoch,
		guard: g.State,
	}
	t.sys.registry.add(rec, t.sys.cfg.Now())
	defer t.sys.registry.remove(rec)
	crashes := failures{budget: t.sys.cfg.Budget}
	for inARow := 0; g.CheckActive() == nil; inARow++ {
		began := t.sys.cfg.Now()
		err := t.runOnce(rec, g, loop)
		if g.CheckActive() != nil {
			return // revoked meanwhile: that is no failure of the loop, and the trace shows the refusal
		}
		var stuck *stuckError
		if errors.As(err, &stuck) {
			rec.failed(err, false)
			t.giveUp(CodeStuck, fmt.Sprintf("loop %s: %v", loop.Name, err))
			return
		}
		now := t.sys.cfg.Now()
		if now.Sub(began) >= t.sys.cfg.Budget.Window {
			inARow = 0
		}
		again := crashes.add(now)
		rec.failed(err, again)
		if !again {
			t.giveUp(CodeBudgetSpent, fmt.Sprintf("loop %s failed more than %d times in %s: %v",
				loop.Name, t.sys.cfg.Budget.Restarts, t.sys.cfg.Budget.Window, err))
			return
		}
		wait := t.sys.cfg.Backoff.wait(inARow)
		t.sys.log.Warn("loop ended and is started again", "loop", rec.path, "error", err, "restart_in", wait)
		if t.pause(wait) != nil {
			return
		}
	}
}

func (t *tree) runOnce(rec *record, g cluster.RoleGuard, loop Loop) error {
	t.sys.trace(trace.LoopStart, t.role(), t.epoch, loop.Name)
	defer t.sys.trace(trace.LoopEnd, t.role(), t.epoch, loop.Name)
	err := protect(func() error { return loop.Run(g.Context(), g) })
	var p *panicError
	if errors.As(err, &p) {
		t.sys.log.Error("loop panicked", "loop", rec.path, "reason", p.value, "stack", string(p.stack))
	}
	if err == nil {
		err = errLoopReturned
	}
	return err
}
