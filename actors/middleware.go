// The middleware that every actor runs under: it counts, it keeps panics from reviving or hanging a stopping actor.

package actors

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
)

// props is the only way actors of this package are made: one call for one spawn.
func (s *System) props(rec *record, producer actor.Producer) *actor.Props {
	return actor.PropsFromProducer(producer,
		actor.WithMailbox(func() actor.Mailbox {
			return newMailbox(s, rec)
		}),
		// Runs once the name is taken; the engine calls producers even for a name that exists.
		actor.WithOnInit(func(actor.Context) { s.registry.add(rec, s.cfg.Now()) }),
		actor.WithReceiverMiddleware(func(next actor.ReceiverFunc) actor.ReceiverFunc {
			return func(c actor.ReceiverContext, env *actor.MessageEnvelope) { s.receive(rec, next, c, env) }
		}),
	)
}

// receive hands one message to an actor.
//
// A panic is logged with its stack and then
//
//	alive                  → passed on: the supervisor decides
//	stopping or restarting → kept here: the engine would restart an actor that
//	                         panics while it stops, and would never tell the
//	                         parent of one that panics in Stopped
//	the root               → the process ends
//
// Work that arrives after Stopping is refused: the engine still delivers it
// while the actor waits for its children.
func (s *System) receive(rec *record, next actor.ReceiverFunc, c actor.ReceiverContext, env *actor.MessageEnvelope) {
	if rec.done.Load() {
		return // a Restart that was under way when the actor stopped would revive it
	}
	msg := env.Message
	queued := fromMailbox(msg)
	if queued {
		rec.taken(msg)
	}
	rec.messages.Add(1)
	s.before(rec, msg)
	defer func() {
		reason := recover()
		if queued {
			rec.handled()
		}
		if _, ok := msg.(*actor.Stopped); ok {
			s.departed(rec)
		}
		if reason != nil {
			s.panicked(rec, msg, reason)
		}
	}()
	if queued && rec.isLeaving() {
		s.discard(rec, msg)
		return
	}
	if n := rec.crash.Load(); n > 0 && rec.crash.CompareAndSwap(n, n-1) {
		panic(errCrashRequested)
	}
	if queued && s.misbehave(msg) {
		return
	}
	next(c, env)
}

// before keeps the lifecycle of the record in step with the actor's.
func (s *System) before(rec *record, msg any) {
	switch msg.(type) {
	case *actor.Started:
		rec.mu.Lock()
		rec.leaving = false
		rec.mu.Unlock()
	case *actor.Stopping, *actor.Restarting:
		rec.mu.Lock()
		rec.leaving = true
		rec.mu.Unlock()
		if rec.onStopping != nil {
			rec.onStopping()
		}
	}
}

func (s *System) departed(rec *record) {
	rec.done.Store(true)
	s.registry.remove(rec)
	if rec.onStopped != nil {
		rec.onStopped()
	}
}

func (s *System) panicked(rec *record, msg, reason any) {
	rec.failed(reason, false)
	s.log.Error("actor panicked", "actor", rec.path, "message", typeName(msg),
		"reason", reason, "stack", string(debug.Stack()))
	switch {
	case rec.kind == KindRoot:
		s.die(fmt.Sprint(reason))
	case !rec.isLeaving():
		panic(reason)
	}
}

// discard drops a message of an actor that is on its way out; work is answered.
func (s *System) discard(rec *record, msg any) {
	switch m := msg.(type) {
	case *work:
		m.refuse(errRoleStopped)
	case *tick, *actor.PoisonPill:
	default:
		s.log.Debug("message to a stopping actor dropped", "actor", rec.path, "message", typeName(msg))
	}
}

var errCrashRequested = errors.New("crash requested")
