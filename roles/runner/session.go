// One agent's link on a daemon: a reader that passes messages to the desk, and a writer of what is posted.

package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

const outboxSize = 4096 // far above what MaxSlots leases can have under way

type session struct {
	of    *Sessions
	agent string
	id    string // transport session (§117)
	link  Link

	outbox chan Message
	ctx    context.Context
	cancel context.CancelCauseFunc

	asked   bool // its registration was sent: the database may know the link
	sent    sentOrders
	pulse   pulses // of its desk worker
	drained bool   // what the agent was last told; of Sessions.Run once the session is live
}

func newSession(of *Sessions, agent, id string, link Link) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &session{of: of, agent: agent, id: id, link: link, ctx: ctx, cancel: cancel, outbox: make(chan Message, outboxSize)}
}

// cut ends the session.
func (l *session) cut(why error) { l.cancel(why) }

// post queues a message for the agent. It never blocks: an agent that does not
// read loses its link, not this daemon its time.
func (l *session) post(m Message) {
	select {
	case l.outbox <- m:
	default:
		l.cut(errors.New("the agent does not read"))
	}
}

// serve returns why the link ended, after its goroutines have.
func (l *session) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { l.cut(fmt.Errorf("the connection or the daemon ended: %w", context.Cause(ctx))) })
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { l.cut(l.read()) })
	parts.Go(func() { l.cut(l.write()) })
	<-l.ctx.Done()
	_ = l.link.Close() // lets the reader and the writer go
	parts.Wait()
	return context.Cause(l.ctx)
}

func (l *session) read() error {
	for {
		m, err := l.link.Receive(l.ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if err := l.of.desk.put(l.ctx, said{from: l, message: m}); err != nil {
			return err
		}
	}
}

func (l *session) write() error {
	for {
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case m := <-l.outbox:
			ctx, done := context.WithTimeout(l.ctx, l.of.cfg.Timing.Request)
			err := l.link.Send(ctx, m)
			done()
			if err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
	}
}
