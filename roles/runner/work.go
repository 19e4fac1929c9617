// One transaction of a daemon's agents: what their messages become together, and what each is answered.

package runner

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/roles/store"
)

// said is a message and the link that brought it.
type said struct {
	from    *session
	message Message
}

// claim is a lease and who speaks of it. Nothing of a message is noted by its
// lease alone: any agent can name any lease, and what it says of one that is not
// its own must not become the answer to the owner, nor keep the owner's from being heard.
type claim struct{ by, lease string }

// work is one transaction. However many messages it takes, from however many
// agents, it is a handful of statements: each takes arrays.
type work struct {
	ttl     time.Duration
	batch   []said
	stale   map[*session]map[string]bool // leases whose work stands still: they are not extended
	alive   map[claim]bool               // leases that a heartbeat of the agent has extended
	granted map[claim]bool               // leases that may start, by link: of an agent's processes one alone gets them
	settled map[claim]bool               // completions and releases by agent: accepted or not
	linked  map[string]bool              // agents whose heartbeat came over their current link
	freed   bool                         // a slot became free
	ended   map[Outcome]int              // attempts that ended now
}

func newWork(batch []said, ttl time.Duration, now time.Time, still time.Duration) *work {
	w := &work{
		ttl: ttl, batch: batch, stale: map[*session]map[string]bool{}, alive: map[claim]bool{}, granted: map[claim]bool{},
		settled: map[claim]bool{}, linked: map[string]bool{}, ended: map[Outcome]int{},
	}
	for _, s := range batch {
		if s.message.Beat != nil {
			w.stale[s.from] = s.from.pulse.beat(s.message.Beat.Leases, now, still)
		}
	}
	return w
}

// queue puts the transaction's statements in the one order of locks: leases,
// jobs, orders, agents, each by id, so that none deadlocks with another, nor
// with the scheduler.
func (w *work) queue(b *pgx.Batch) {
	var named, accepted leaseArrays
	for _, s := range w.batch {
		for _, id := range leasesOf(s.message) {
			named.add(id, s)
		}
		if a := s.message.Answer; a != nil && a.Verdict == Accepted {
			accepted.add(a.Lease, s)
		}
	}
	if len(named.ids) > 0 {
		b.Queue(lockLeasesSQL, named.ids, named.agents)
	}
	w.queueBeats(b)
	w.queueCompletions(b)
	w.queueReleases(b)
	if len(accepted.ids) > 0 { // they become the agent process's own for a full time before they may start
		b.Queue(lockOrdersSQL, accepted.ids, accepted.agents)
		b.Queue(acceptSQL, accepted.ids, accepted.agents, accepted.links, w.ttl).Query(collectClaims(w.granted))
	}
	w.queueAgents(b)
}

// leaseArrays name leases, each with the agent that speaks of it and its link.
type leaseArrays struct {
	ids, agents, links []string
}

func (l *leaseArrays) add(id string, s said) {
	l.ids, l.agents, l.links = append(l.ids, id), append(l.agents, s.from.agent), append(l.links, s.from.id)
}

func (w *work) queueBeats(b *pgx.Batch) {
	var of leaseArrays
	var bytes []int64
	var notes []string
	latest := map[claim]int{} // of two heartbeats of an agent in one batch the later one counts
	for _, s := range w.batch {
		if s.message.Beat == nil {
			continue
		}
		for _, p := range s.message.Beat.Leases {
			if w.stale[s.from][p.Lease] {
				continue
			}
			c := claim{s.from.agent, p.Lease}
			i, again := latest[c]
			if !again {
				i = len(of.ids)
				latest[c] = i
				of.add(p.Lease, s)
				bytes, notes = append(bytes, 0), append(notes, "")
			}
			bytes[i], notes[i] = max(bytes[i], p.Bytes), store.Text(p.Note, MaxNote)
		}
	}
	if len(of.ids) > 0 {
		b.Queue(beatSQL, of.ids, of.agents, bytes, notes, w.ttl).Query(collectClaims(w.alive))
	}
}

func (w *work) queueCompletions(b *pgx.Batch) {
	var of leaseArrays
	var outcomes, reasons []string
	var codes []*int
	var took, logs []int64
	var tails [][]byte
	outcomeOf := map[claim]Outcome{}
	for _, s := range w.batch {
		c := s.message.Complete
		if c == nil {
			continue
		}
		by := claim{s.from.agent, c.Lease}
		if _, twice := outcomeOf[by]; twice {
			continue
		}
		outcomeOf[by] = c.Outcome
		of.add(c.Lease, s)
		outcomes, reasons = append(outcomes, string(c.Outcome)), append(reasons, store.Text(c.Reason, MaxReason))
		codes, took, logs = append(codes, c.ExitCode), append(took, c.Duration.Milliseconds()), append(logs, c.LogBytes)
		tails = append(tails, orEmpty(c.Tail))
	}
	if len(of.ids) == 0 {
		return
	}
	b.Queue(completeSQL, of.ids, of.agents, outcomes, codes, took, tails, reasons, logs).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var c claim
			var now bool
			if err := rows.Scan(&c.by, &c.lease, &now); err != nil {
				return err
			}
			w.settled[c] = true
			if now {
				w.freed = true
				w.ended[outcomeOf[c]]++
			}
		}
		return rows.Err()
	})
}

func (w *work) queueReleases(b *pgx.Batch) {
	var of leaseArrays
	var reasons []string
	for _, s := range w.batch {
		if r := s.message.Release; r != nil {
			of.add(r.Lease, s)
			reasons = append(reasons, store.Text(r.Reason, MaxReason))
		}
	}
	if len(of.ids) == 0 {
		return
	}
	b.Queue(releaseSQL, of.ids, of.agents, reasons).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var c claim
			var ok bool
			if err := rows.Scan(&c.by, &c.lease, &ok); err != nil {
				return err
			}
			w.settled[c] = ok
			w.freed = w.freed || ok
		}
		return rows.Err()
	})
}

// queueAgents notes who was heard of. A heartbeat over a link that is not the
// agent's current one tells that the agent has a newer link, here or elsewhere.
func (w *work) queueAgents(b *pgx.Batch) {
	type heard struct{ beat, accepted, closing bool }
	of := map[*session]heard{}
	for _, s := range w.batch {
		h := of[s.from]
		switch m := s.message; {
		case m.Beat != nil:
			h.beat, h.closing = true, h.closing || m.Beat.Closing
		case m.Answer != nil && m.Answer.Verdict == Accepted:
			h.accepted = true
		default:
			continue
		}
		of[s.from] = h
	}
	if len(of) == 0 {
		return
	}
	var agents, links []string
	var beats, accepted, closing []bool
	for s, h := range of {
		agents, links = append(agents, s.agent), append(links, s.id)
		beats, accepted, closing = append(beats, h.beat), append(accepted, h.accepted), append(closing, h.closing)
	}
	b.Queue(heardSQL, agents, links, beats, accepted, closing).Query(collectSet(w.linked))
}

// reply hands out the answers; the transaction has committed. It returns the
// links that the database no longer knows.
func (w *work) reply() (replaced []*session) {
	for _, s := range w.batch {
		if s.message.Answer != nil {
			s.from.sent.answered(s.message.Answer.Lease)
		}
		switch m := s.message; {
		case m.Answer != nil && m.Answer.Verdict == Accepted:
			s.from.post(Message{Start: &Start{Lease: m.Answer.Lease, Granted: w.granted[claim{s.from.id, m.Answer.Lease}]}})
		case m.Complete != nil:
			s.from.post(Message{Completed: &Completed{Lease: m.Complete.Lease, Accepted: w.settled[claim{s.from.agent, m.Complete.Lease}]}})
		case m.Release != nil:
			s.from.post(Message{Completed: &Completed{Lease: m.Release.Lease, Accepted: w.settled[claim{s.from.agent, m.Release.Lease}]}})
		case m.Beat != nil:
			pulse := &Pulse{Seq: m.Beat.Seq}
			for _, p := range m.Beat.Leases {
				if w.alive[claim{s.from.agent, p.Lease}] {
					pulse.Alive = append(pulse.Alive, p.Lease)
				}
			}
			s.from.post(Message{Pulse: pulse})
			if !w.linked[s.from.id] && !slices.Contains(replaced, s.from) {
				replaced = append(replaced, s.from)
			}
		}
	}
	return replaced
}

// collectSet adds the first column of every row to a set.
func collectSet(into map[string]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			into[id] = true
		}
		return rows.Err()
	}
}

// collectClaims adds the first two columns of every row to a set.
func collectClaims(into map[claim]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var c claim
			if err := rows.Scan(&c.by, &c.lease); err != nil {
				return err
			}
			into[c] = true
		}
		return rows.Err()
	}
}
