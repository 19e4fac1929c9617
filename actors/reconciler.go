// The cluster reconciler: sweeps the checks of §244 while this node leads, after each leadership change and periodically (§88).

package actors

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster/reconcile"
)

// Reconciler runs one sweep under the present leadership of this node; reconcile.Reconciler is one.
type Reconciler interface {
	Sweep(ctx context.Context) (reconcile.Report, error)
}

// Pace of the sweeps.
const (
	// recheck is when a sweep that found anything, or failed, is followed by the next one.
	recheck = 5 * time.Second
	// sweepBound is how long one sweep may take.
	sweepBound = 10 * time.Second
)

// reconcilerActor starts a sweep when one is due; sweeps run off the mailbox,
// one at a time. A failing one disturbs no role: it is tried again.
type reconcilerActor struct {
	sys *System
	rec *record

	ctx  context.Context // ends when the actor stops or is restarted
	term uint64          // of the last sweep
	due  time.Time       // of the next one in the same term
	runs bool
}

func newReconciler(s *System, rec *record) *reconcilerActor {
	a := &reconcilerActor{sys: s, rec: rec}
	a.ctx, rec.onStopping = context.WithCancel(context.Background())
	return a
}

// swept tells the actor that a sweep has ended.
type swept struct {
	from   *reconcilerActor // a restarted actor is another one
	report reconcile.Report
	err    error
}

func (a *reconcilerActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		a.look()
	case *tick:
		a.look()
	case *swept:
		if m.from == a {
			a.note(m)
		}
	default:
		a.sys.ignored(a.rec, m)
	}
}

// look starts a sweep when this node has begun to lead a term, or the last one is old.
func (a *reconcilerActor) look() {
	view := a.sys.cfg.Backend.View()
	leadership, leads := a.sys.cfg.Backend.Leadership()
	inOffice := leads && view.LeaderEpoch.Term == leadership.Term && view.Leader == a.sys.self.Node && view.LeaderInc == a.sys.self.Incarnation
	now := a.sys.cfg.Now()
	if a.runs || !inOffice || leadership.Term == a.term && now.Before(a.due) {
		return
	}
	a.term, a.runs = leadership.Term, true
	a.sys.work.Go(a.sweep)
}

func (a *reconcilerActor) sweep() {
	ctx, cancel := context.WithTimeout(a.ctx, sweepBound)
	defer cancel()
	out := &swept{from: a}
	out.err = protect(func() (err error) {
		out.report, err = a.sys.cfg.Reconciler.Sweep(ctx)
		return err
	})
	a.sys.send(pathReconciler, out)
}

func (a *reconcilerActor) note(m *swept) {
	a.runs = false
	now := a.sys.cfg.Now()
	a.due = now.Add(recheck)
	var p *panicError
	switch {
	case errors.As(m.err, &p):
		a.sys.log.Error("cluster reconciler panicked", "reason", p.value, "stack", string(p.stack))
		panic(m.err)
	case m.err != nil:
		a.rec.failed(m.err, false)
		a.sys.log.Warn("cluster reconciler could not sweep", "term", a.term, "error", m.err)
	default:
		a.rec.scanned(now, m.report.String())
		if len(m.report.Findings) == 0 {
			a.due = now.Add(a.sys.cfg.Sweep)
		}
	}
}
