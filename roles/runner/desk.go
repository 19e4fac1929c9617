// The desk: where a daemon handles what its agents say, many messages of many agents in one transaction.

package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	deskWorkers = 2   // transactions under way at once: while one commits, the other gathers
	workBatch   = 512 // messages handled in one transaction
)

// desk hands each agent's messages to the same worker, so that they are
// handled in the order in which they came.
type desk struct {
	in [deskWorkers]chan said
}

func newDesk() *desk {
	d := &desk{}
	for i := range d.in {
		d.in[i] = make(chan said, workBatch)
	}
	return d
}

// put waits for a place. Senders get theirs in turn, so that no agent crowds out the others.
func (d *desk) put(ctx context.Context, s said) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.from.agent)) // never fails
	select {
	case d.in[h.Sum32()%deskWorkers] <- s:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work handles messages in the order of arrival, as many together as have arrived.
func (s *Sessions) work(ctx context.Context, in <-chan said) {
	for {
		var batch []said
		select {
		case <-ctx.Done():
			return
		case m := <-in:
			batch = append(batch, m)
		}
	more:
		for len(batch) < workBatch {
			select {
			case m := <-in:
				batch = append(batch, m)
			default:
				break more
			}
		}
		s.handle(ctx, batch)
	}
}

// handle applies messages and answers them. What fails is dropped, whether or
// not it has committed: the agent repeats each message until it is answered, and
// each is harmless to repeat. When the database refuses a transaction of several
// agents, each gets one of its own, so that none can spoil the others' for ever.
func (s *Sessions) handle(ctx context.Context, batch []said) {
	batch = slices.DeleteFunc(batch, func(m said) bool {
		if m.message.Answer != nil && m.from.ctx.Err() != nil {
			return true // no Start could reach the agent any more
		}
		err := malformed(m.message)
		if err != nil {
			m.from.cut(err)
		}
		return err != nil
	})
	if len(batch) == 0 {
		return
	}
	err := s.apply(ctx, batch)
	if err == nil || ctx.Err() != nil {
		return
	}
	agents := map[*session][]said{}
	for _, m := range batch {
		agents[m.from] = append(agents[m.from], m)
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && len(agents) > 1 {
		s.log.Warn("messages of several agents were refused together; each agent's are tried alone", "messages", len(batch), "err", err)
		for _, alone := range agents {
			if err := s.apply(ctx, alone); err != nil {
				s.log.Warn("messages of an agent were not handled", "agent", alone[0].from.agent, "messages", len(alone), "err", err)
			}
		}
		return
	}
	s.log.Warn("messages of agents were not handled", "agents", len(agents), "messages", len(batch), "err", err)
}

// apply handles messages in one transaction and answers after it committed.
func (s *Sessions) apply(ctx context.Context, batch []said) error {
	ctx, done := context.WithTimeout(ctx, s.cfg.Timing.Request)
	defer done()
	w := newWork(batch, s.cfg.Timing.LeaseTTL, time.Now(), s.cfg.Timing.Still)
	if err := s.cfg.Store.Batch(ctx, func(b *pgx.Batch) { w.queue(b) }); err != nil {
		return err
	}
	s.meter.ends(w.ended)
	for _, l := range w.reply() {
		l.cut(&protocolError{what: "the agent has a newer link"})
	}
	if w.freed {
		s.cfg.Wake()
	}
	return nil
}

// protocolError is a message that no correct agent sends; it costs the link.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "protocol: " + e.what }

// leasesOf lists the leases a message speaks of.
func leasesOf(m Message) []string {
	switch {
	case m.Answer != nil:
		return []string{m.Answer.Lease}
	case m.Complete != nil:
		return []string{m.Complete.Lease}
	case m.Release != nil:
		return []string{m.Release.Lease}
	case m.Beat != nil:
		ids := make([]string, len(m.Beat.Leases))
		for i, p := range m.Beat.Leases {
			ids[i] = p.Lease
		}
		return ids
	}
	return nil
}

// malformed refuses what no correct agent sends, before the database sees it.
func malformed(m Message) error {
	switch {
	case m.Beat != nil && len(m.Beat.Leases) > 2*MaxSlots:
		return &protocolError{what: "a heartbeat with too many leases"}
	case m.Complete != nil && (!m.Complete.Outcome.valid() || len(m.Complete.Tail) > MaxTail || m.Complete.Duration < 0 || m.Complete.LogBytes < 0):
		return &protocolError{what: "a malformed completion"}
	}
	if m.Beat != nil {
		for _, p := range m.Beat.Leases {
			if p.Bytes < 0 {
				return &protocolError{what: "negative progress"}
			}
		}
	}
	for _, id := range leasesOf(m) {
		if !validLease(id) {
			return &protocolError{what: fmt.Sprintf("%.40q is no lease id", id)}
		}
	}
	return nil
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
