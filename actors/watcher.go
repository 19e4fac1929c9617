// The leadership watcher: it turns what the committed views want into spawn and poison messages.

package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/fsm"
)

// spawn and poison are what the watcher tells a role supervisor. They name the
// epoch for the log; the supervisor asks the service again what is wanted, so a
// doubled, late or reordered message does no harm (§291).
type (
	spawn  struct{ epoch fsm.Epoch }
	poison struct{ epoch fsm.Epoch }
)

// watcher compares, at each tick, the tree that should exist for each role with
// the one it last asked for. A tick comes when the service hints at a change and
// at least every Config.Reload, so a lost hint only delays (§292). It starts
// from nothing, so after a restart it tells every supervisor once more.
type watcher struct {
	sys  *System
	rec  *record
	told map[fsm.Role]told
}

func (w *watcher) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		w.told = map[fsm.Role]told{}
		w.look()
	case *tick:
		w.look()
	default:
		w.sys.ignored(w.rec, m)
	}
}

func (w *watcher) look() {
	for _, seat := range w.sys.seats {
		role := seat.spec.Role
		next, messages := w.told[role].next(seat.wanted(w.sys.cfg.Trees))
		w.told[role] = next
		for _, m := range messages {
			w.sys.send(rolePath(role), m)
		}
	}
}

// told is what the watcher last asked of one role supervisor.
type told struct {
	live    fsm.Epoch // the tree it asked for; 0: none
	highest fsm.Epoch // the highest epoch it ever asked for
}

// next is the whole policy of the watcher, a pure function:
//
//	wanted             → messages
//	what was asked for → none
//	0                  → poison the tree asked for
//	a higher epoch     → poison the tree asked for, if any; spawn
//	any other epoch    → none: epochs only rise, so the view is an older one
func (t told) next(want fsm.Epoch) (told, []any) {
	if want == t.live || (want != 0 && want <= t.highest) {
		return t, nil
	}
	var messages []any
	if t.live != 0 {
		messages = append(messages, &poison{t.live})
	}
	if want != 0 {
		messages = append(messages, &spawn{want})
	}
	return told{live: want, highest: max(t.highest, want)}, messages
}
