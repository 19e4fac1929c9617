// One attempt on its agent: accepted → running → ended → acknowledged.

package runner

import (
	"context"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// phase is an attempt's place in its life. An accepted attempt whose link broke
// before Start is forgotten: nothing has happened, and it will be offered again.
type phase uint8

const (
	phaseAccepted phase = iota // the lease is asked for, repeatedly; waits for Start
	phaseRunning
	phaseEnded // report is set; repeated until a daemon answers
)

// Why an attempt was made to end.
var (
	errTimeout   = errors.New("time limit")
	errCancelled = errors.New("cancelled by a client")
	errDeadline  = errors.New("the lease could not be extended in time")
	errStopping  = errors.New("the agent is stopping")
	errDropped   = errors.New("the lease is no longer this agent's")
)

// attempt is guarded by Agent.mu.
type attempt struct {
	offer    Offer
	phase    phase
	answered time.Time // when the acceptance was first sent: the lease ends no earlier than TTL after it
	report   Message   // Complete or Release
	reported bool      // sent at least once
	tail     *tail
	life     *Lifeline
	cancel   context.CancelCauseFunc // nil unless running
	dropped  bool                    // it was someone else's or nobody's while it ran
	kill     *time.Timer             // fires Margin before the agent's own lease deadline
}

// end makes a running attempt end for a reason; others are left alone.
func (at *attempt) end(why error) {
	if at.phase == phaseRunning {
		at.cancel(why)
	}
}

// consider answers an offer. It never starts anything.
func (a *Agent) consider(o Offer) (Message, error) {
	ok, newGeneration, err := a.journal.admit(o.Role, mark{Generation: o.Generation, Epoch: o.Epoch})
	if err != nil {
		return Message{}, err
	}
	answer := func(v Verdict) Message { return Message{Answer: &Answer{Lease: o.Lease, Verdict: v}} }
	if !ok {
		a.log.Info("refused an order of an older scheduler", "lease", o.Lease, "epoch", o.Epoch, "generation", o.Generation)
		return answer(Reread), nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if newGeneration {
		a.dropOlder(o.Generation)
	}
	if at := a.attempts[o.Lease]; at != nil {
		switch {
		case at.phase == phaseEnded:
			return at.report, nil
		case at.dropped:
			return answer(Busy), nil // until nothing of it runs any more
		}
		return answer(Accepted), nil
	}
	switch {
	case a.journal.hasStarted(o.Lease):
		return Message{Release: &Release{Lease: o.Lease, Reason: "this agent started it before", Started: true}}, nil
	case a.closing || a.draining:
		return Message{Release: &Release{Lease: o.Lease, Reason: "the agent takes nothing new"}}, nil
	case a.occupied() >= a.cfg.Slots:
		return answer(Busy), nil
	}
	if err := a.journal.write(entryOf(EntryDispatch, o), false); err != nil {
		return Message{}, err
	}
	a.attempts[o.Lease] = &attempt{offer: o, answered: time.Now()}
	return answer(Accepted), nil
}

// dropOlder ends what an earlier recovery generation ordered: after a disaster
// recovery the database may not know of it. What has not begun is forgotten: a
// Start for it may still be on its way.
func (a *Agent) dropOlder(g fsm.Generation) {
	for lease, at := range a.attempts {
		if at.offer.Generation < g {
			a.drop(lease, at)
		}
	}
}

// drop ends an attempt that is no longer this agent's. What has already ended
// keeps its report: the daemon's refusal of it closes the matter.
func (a *Agent) drop(lease string, at *attempt) {
	if at.phase == phaseAccepted {
		delete(a.attempts, lease)
		return
	}
	at.dropped = true
	at.end(errDropped)
}

func (a *Agent) occupied() int {
	n := 0
	for _, at := range a.attempts {
		if at.phase != phaseEnded {
			n++
		}
	}
	return n
}

// start begins an accepted attempt, once: the journal's line is on disk before.
func (a *Agent) start(s Start, ttl time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.attempts[s.Lease]
	if at == nil || at.phase != phaseAccepted {
		return nil // a repeated Start
	}
	deadline := at.answered.Add(ttl - a.cfg.Timing.Margin)
	if !s.Granted {
		delete(a.attempts, s.Lease)
		return nil
	}
	if a.closing || !time.Now().Before(deadline) {
		at.phase, at.report = phaseEnded, Message{Release: &Release{Lease: s.Lease, Reason: "the order to start came too late"}}
		return nil
	}
	if err := a.journal.write(entryOf(EntryStart, at.offer), true); err != nil {
		delete(a.attempts, s.Lease)
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	at.phase, at.cancel, at.tail, at.life = phaseRunning, cancel, newTail(MaxTail), &Lifeline{}
	at.life.until(deadline)
	at.kill = time.AfterFunc(time.Until(deadline), func() { cancel(errDeadline) })
	a.tasks.Add(1)
	go func() {
		defer a.tasks.Done()
		defer cancel(nil)
		a.execute(ctx, at)
	}()
	return nil
}

// execute runs one attempt to its end and leaves its report.
func (a *Agent) execute(ctx context.Context, at *attempt) {
	o := at.offer
	ctx, stop := context.WithTimeoutCause(ctx, o.Timeout, errTimeout)
	defer stop()
	began := time.Now()
	res := a.perform(ctx, at)
	at.kill.Stop()
	report := reportOf(o.Lease, res, time.Since(began))
	e := entryOf(EntryFinish, o)
	if c := report.Complete; c != nil {
		c.Tail = at.tail.Bytes()
		e.Outcome, e.ExitCode, e.Duration, e.Reason, e.LogBytes = c.Outcome, c.ExitCode, c.Duration, c.Reason, c.LogBytes
	} else {
		e.Reason = report.Release.Reason
	}
	// A result that is not on disk is still reported by this process; only a restarted one gives the lease up instead.
	if err := a.journal.write(e, true); err != nil {
		a.fail(err)
	}
	a.log.Debug("attempt ended", "lease", o.Lease, "job", o.Job, "attempt", o.Attempt, "outcome", e.Outcome, "reason", e.Reason)
	a.mu.Lock()
	at.phase, at.report = phaseEnded, report
	link := a.link
	a.mu.Unlock()
	if link != nil {
		link.nudge()
	}
}

// settle forgets an attempt whose report a daemon has accepted or refused.
func (a *Agent) settle(lease string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.attempts[lease]
	if at == nil || at.phase != phaseEnded {
		return nil
	}
	delete(a.attempts, lease)
	return a.journal.write(entryOf(EntryClose, at.offer), false)
}

func entryOf(what EntryKind, o Offer) Entry {
	return Entry{What: what, Lease: o.Lease, Job: o.Job, Attempt: o.Attempt, Epoch: o.Epoch, Generation: o.Generation}
}
