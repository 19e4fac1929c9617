// One agent's link on a daemon: a reader, a writer, and a worker that handles what arrived in one transaction at a time.

package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

const (
	inboxSize  = 256
	outboxSize = 4096 // far above what MaxSlots leases can have under way
	workBatch  = 128  // messages handled in one transaction
)

type session struct {
	of    *Sessions
	agent string
	id    string // transport session (§117)
	link  Link

	inbox  chan Message
	outbox chan Message
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newSession(of *Sessions, agent, id string, link Link) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &session{
		of: of, agent: agent, id: id, link: link, ctx: ctx, cancel: cancel,
		inbox: make(chan Message, inboxSize), outbox: make(chan Message, outboxSize),
	}
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
	parts.Go(func() { l.cut(l.work()) })
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
		select {
		case l.inbox <- m:
		case <-l.ctx.Done():
			return l.ctx.Err()
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

// work handles messages in the order of arrival, as many together as have
// arrived. A transaction that fails is dropped with its messages: the agent
// repeats each of them, and each is harmless to repeat.
func (l *session) work() error {
	for {
		var batch []Message
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case m := <-l.inbox:
			batch = append(batch, m)
		}
	more:
		for len(batch) < workBatch {
			select {
			case m := <-l.inbox:
				batch = append(batch, m)
			default:
				break more
			}
		}
		if err := l.handle(batch); err != nil {
			if fatal := (*protocolError)(nil); errors.As(err, &fatal) || l.ctx.Err() != nil {
				return err
			}
			l.of.log.Warn("messages of an agent were not handled", "agent", l.agent, "messages", len(batch), "err", err)
		}
	}
}

// protocolError is a message that no correct agent sends; it costs the link.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "protocol: " + e.what }

// handle applies messages in one transaction and answers after it committed.
func (l *session) handle(batch []Message) error {
	leases, err := leasesOf(batch)
	if err != nil {
		return err
	}
	// Every transaction takes row locks in lease order, so that none deadlocks with another or with the scheduler.
	slices.SortStableFunc(batch, func(a, b Message) int { return cmp.Compare(leaseOf(a), leaseOf(b)) })
	w := &work{agent: l.agent, link: l.id, timing: l.of.cfg.Timing}
	ctx, done := context.WithTimeout(l.ctx, l.of.cfg.Timing.Request)
	defer done()
	err = l.of.cfg.Store.Batch(ctx, func(b *pgx.Batch) {
		w.queueLocks(b, leases)
		for _, m := range batch {
			w.queue(b, m)
		}
	})
	if err != nil {
		return err
	}
	for _, m := range w.answers {
		l.post(m)
	}
	if w.replaced {
		return &protocolError{what: "the agent has a newer link"}
	}
	if w.freed {
		l.of.cfg.Wake()
	}
	return nil
}

// leaseOf is the lease a message speaks of; heartbeats sort first and speak of many.
func leaseOf(m Message) string {
	switch {
	case m.Answer != nil:
		return m.Answer.Lease
	case m.Complete != nil:
		return m.Complete.Lease
	case m.Release != nil:
		return m.Release.Lease
	}
	return ""
}

// leasesOf lists every lease the messages speak of and refuses what is malformed.
func leasesOf(batch []Message) ([]string, error) {
	var all []string
	for _, m := range batch {
		switch {
		case m.Beat != nil:
			if len(m.Beat.Leases) > 2*MaxSlots {
				return nil, &protocolError{what: "a heartbeat with too many leases"}
			}
			for _, p := range m.Beat.Leases {
				all = append(all, p.Lease)
			}
		case m.Complete != nil && (!m.Complete.Outcome.valid() || len(m.Complete.Tail) > MaxTail || m.Complete.Duration < 0):
			return nil, &protocolError{what: "a malformed completion"}
		case m.Answer != nil || m.Complete != nil || m.Release != nil:
			all = append(all, leaseOf(m))
		}
	}
	for _, id := range all {
		if !validLease(id) {
			return nil, &protocolError{what: fmt.Sprintf("%.40q is no lease id", id)}
		}
	}
	return all, nil
}

// validLease accepts the text form of a UUID, which is what the database makes.
func validLease(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, r := range []byte(id) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (r == '-') {
			return false
		}
		if r != '-' && !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f') {
			return false
		}
	}
	return true
}
