// The leader supervisor and the coordination-leader actor, which lives only while this node leads a term.

package actors

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
)

// leadSeat is the one place a coordination leader can occupy in this process.
// It outlives the supervisor, like the seat of a role.
type leadSeat struct {
	mu   sync.Mutex
	lead *lead // until its actor has stopped and its goroutine has returned
}

func (s *leadSeat) current() *lead {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lead
}

func (s *leadSeat) set(l *lead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lead = l
}

// leaderSupervisor follows the leadership of this node:
//
//	leads term t, seat empty          → spawn leader/t
//	leads another term, or not at all → stop; the next one waits for the end
//
// A crashed leader is spawned anew under the same term. Beyond the budget this
// node hands leadership to another voter, if there is one, and pauses for one window.
type leaderSupervisor struct {
	sys     *System
	rec     *record
	child   *actor.PID // until its Terminated
	crashes failures
	pause   time.Time // no leader before
}

func (v *leaderSupervisor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		v.crashes.budget = v.sys.cfg.Budget
		v.converge(c)
	case *tick:
		v.converge(c)
		if v.child != nil {
			c.Send(v.child, m)
		}
	case *actor.Terminated:
		v.child = nil
		if !v.rec.isLeaving() { // spawning while stopping would hang the stop
			v.converge(c)
		}
	default:
		v.sys.ignored(v.rec, m)
	}
}

func (v *leaderSupervisor) converge(c actor.Context) {
	leadership, leads := v.sys.cfg.Backend.Leadership()
	switch l := v.sys.lead.current(); {
	case l != nil && (!leads || l.term != leadership.Term):
		if v.child != nil {
			c.Stop(v.child)
		}
	case l == nil && leads && v.child == nil && !v.sys.cfg.Now().Before(v.pause) && !v.sys.stopping.Load():
		v.spawn(c, leadership.Term)
	}
}

func (v *leaderSupervisor) spawn(c actor.Context, term uint64) {
	l := newLead(v.sys, term)
	v.sys.lead.set(l)
	pid, err := c.SpawnNamed(v.sys.props(l.rec, func() actor.Actor { return &leaderActor{lead: l} }), strconv.FormatUint(term, 10))
	if err != nil {
		l.life.leave()
		panic(fmt.Errorf("spawn the coordination leader: %w", err))
	}
	v.child = pid
}

// HandleFailure stops the failed leader; its Terminated leads to the next one.
func (v *leaderSupervisor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	now := v.sys.cfg.Now()
	again := v.crashes.add(now)
	v.rec.failed(reason, again)
	if !again {
		v.crashes.reset()
		v.pause = now.Add(v.crashes.budget.Window)
		v.sys.stepDown(fmt.Sprintf("the coordination leader failed more than %d times in %s: %v",
			v.crashes.budget.Restarts, v.crashes.budget.Window, reason))
	}
	sup.StopChildren(child)
}

// stepDown asks this node to hand leadership over, off the mailbox. It goes on leading where there is no other voter.
func (s *System) stepDown(reason string) {
	s.log.Error("this node is asked to hand over its leadership", "reason", reason)
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cluster.DefaultRequestTimeout)
		defer cancel()
		if err := s.cfg.Backend.StepDown(ctx, reason); err != nil {
			s.log.Error("leadership could not be handed over", "error", err)
		}
	})
}

// leaderActor owns one leadership. Its goroutine proposes; its mailbox only wakes it.
type leaderActor struct{ lead *lead }

func (a *leaderActor) Receive(c actor.Context) {
	l := a.lead
	switch m := c.Message().(type) {
	case *actor.Started:
		l.life.start(l.run)
	case *tick:
		select {
		case l.wake <- struct{}{}:
		default: // it has not looked since the last one
		}
	case *failed:
		panic(m.err)
	default:
		l.sys.ignored(l.rec, m)
	}
}

// lead is one leadership of this node: the term, and the goroutine that leads it.
type lead struct {
	sys    *System
	term   uint64
	rec    *record
	life   *life
	wake   chan struct{}
	ctx    context.Context // ends when the actor stops
	cancel context.CancelFunc
}

func newLead(s *System, term uint64) *lead {
	l := &lead{sys: s, term: term, wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.life = newLife(&s.work, l.ended)
	l.rec = &record{path: l.path(), parent: pathLeader, kind: KindLeader, onStopping: l.cancel, onStopped: l.life.leave}
	return l
}

func (l *lead) path() string { return pathLeader + "/" + strconv.FormatUint(l.term, 10) }

func (l *lead) ended() {
	l.cancel()
	l.sys.lead.set(nil)
	l.sys.send(pathLeader, &tick{})
}

func (l *lead) run() {
	err := protect(l.preside)
	var p *panicError
	if errors.As(err, &p) {
		l.sys.log.Error("coordination leader panicked", "term", l.term, "reason", p.value, "stack", string(p.stack))
		l.sys.send(l.path(), &failed{err})
	}
}
