// The mailbox of every actor: protoactor's unbounded one behind counters, with coalesced ticks and a bound on work.

package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// tick tells an actor to look at the world again. It carries nothing, so at
// most one waits in a mailbox at a time.
type tick struct{}

// mailbox wraps the engine's mailbox. The engine's own bounded mailbox blocks
// the sender when it is full; this one refuses work with a typed answer.
//
// The engine makes an actor's name known before its mailbox can take a message:
// one that is posted in between would end the process with a nil dereference,
// or be handled before Started. Senders wait for these few instructions.
type mailbox struct {
	actor.Mailbox
	sys     *System
	rec     *record
	started chan struct{} // closed once the mailbox runs and holds Started
}

func newMailbox(s *System, rec *record) *mailbox {
	return &mailbox{Mailbox: actor.Unbounded()(), sys: s, rec: rec, started: make(chan struct{})}
}

// Start is what the engine calls last, after it has posted Started.
func (m *mailbox) Start() {
	m.Mailbox.Start()
	close(m.started)
}

// PostSystemMessage queues a message of the engine.
func (m *mailbox) PostSystemMessage(msg any) {
	if _, ok := msg.(*actor.Started); !ok {
		<-m.started
	}
	m.Mailbox.PostSystemMessage(msg)
}

// PostUserMessage queues a message, unless it is a tick that says nothing new
// or work beyond the bound.
func (m *mailbox) PostUserMessage(msg any) {
	<-m.started
	switch w := actor.UnwrapEnvelopeMessage(msg).(type) {
	case *tick:
		if !m.rec.ticking.CompareAndSwap(false, true) {
			return
		}
	case *work:
		if m.rec.queued.Load() >= int64(m.rec.bound) {
			w.refuse(ErrOverloaded)
			return
		}
	}
	m.rec.posted(m.sys.cfg.Now())
	m.Mailbox.PostUserMessage(msg)
}

// posted notes a message that was queued; taken and handled follow it.
func (r *record) posted(now time.Time) {
	r.queued.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, now)
}

// taken notes that a queued message left the queue and is being handled.
func (r *record) taken(msg any) {
	if _, ok := msg.(*tick); ok {
		r.ticking.Store(false) // before it is handled: what changes from now on is a new tick
	}
	r.queued.Add(-1)
}

// handled forgets the oldest message.
func (r *record) handled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 0 {
		r.waiting = r.waiting[1:]
	}
}

// fromMailbox reports whether the engine took msg from the user queue; its
// lifecycle messages are invoked directly.
func fromMailbox(msg any) bool {
	switch msg.(type) {
	case *actor.Stopping, *actor.Stopped, *actor.Restarting, actor.SystemMessage:
		return false
	}
	return true
}
