// How the engine is set up: quiet, without metrics, with its dead letters counted.

package actors

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

func newProtoSystem(log *slog.Logger) *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(warnings{log.Handler()}) }),
		// Dead letters are logged by countDeadLetters. The engine's own throttle
		// starts a goroutine for each interval; keep those short-lived.
		actor.WithDeadLetterThrottleCount(0),
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
}

// warnings lets only warnings and errors through: what the engine says at a
// lower level, this package says itself with more detail.
type warnings struct{ next slog.Handler }

func (h warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.next.Enabled(ctx, l)
}
func (h warnings) Handle(ctx context.Context, r slog.Record) error { return h.next.Handle(ctx, r) }
func (h warnings) WithAttrs(a []slog.Attr) slog.Handler            { return warnings{h.next.WithAttrs(a)} }
func (h warnings) WithGroup(name string) slog.Handler              { return warnings{h.next.WithGroup(name)} }

// countDeadLetters counts and logs every message of ours that reached no actor.
func (s *System) countDeadLetters() (stop func()) {
	sub := s.proto.EventStream.Subscribe(func(evt any) {
		letter, ok := evt.(*actor.DeadLetterEvent)
		if !ok {
			return
		}
		s.undelivered(letter.PID.GetId(), letter.Message)
	})
	return func() { s.proto.EventStream.Unsubscribe(sub) }
}

func (s *System) undelivered(to string, msg any) {
	switch m := msg.(type) {
	case actor.SystemMessage, *actor.PoisonPill, *tick, *poison, *treeEnded, *swept:
		return // stopping what has stopped, and hinting at nobody, are no loss
	case *work:
		m.refuse(errRoleStopped)
	}
	s.deadLetters.Add(1)
	s.log.Warn("message reached no actor", "to", to, "message", typeName(msg))
}

// ignored is the default case of every Receive: lifecycle messages need no
// handling, anything else is a message nobody has a use for.
func (s *System) ignored(rec *record, msg any) {
	if _, infrastructure := msg.(actor.AutoReceiveMessage); infrastructure || !fromMailbox(msg) {
		return
	}
	s.unhandled.Add(1)
	s.log.Warn("message not understood", "actor", rec.path, "message", typeName(msg))
}

func typeName(msg any) string { return fmt.Sprintf("%T", msg) }
