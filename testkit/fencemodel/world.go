// One state of the model and everything that can happen in it.

package fencemodel

import "fmt"

const (
	maxOwners = 3
	perOwner  = 2 // the session in use, and one that is still at work though its owner lost it
)

// task is what a session works on.
type task uint8

const (
	idle task = iota
	raising
	mutating
)

// session is a backend of PostgreSQL. It works on whether or not its owner still listens.
type session struct {
	task   task
	pc     uint8 // the next step
	snap   uint8 // the fence of its snapshot
	lock   Op    // the lock it holds; Snap for none
	heard  bool  // its owner waits for its answer
	fence  bool  // has written the fence row
	wrote  bool  // has written leader-owned rows
	told   bool  // its owner took the mutation for done
	placed bool  // its writes are committed
}

// owner is a process that was given the epoch of its number: 1, 2, 3.
type owner struct {
	done uint8 // 0: the fence is not raised; n: n-1 mutations are over
	gone bool  // it crashed, was FENCED, does not know an outcome, or has finished
}

// world is comparable: equal worlds have the same futures.
type world struct {
	owners   [maxOwners]owner
	sessions [maxOwners][perOwner]session
	fence    uint8 // the committed row
	high     uint8 // the highest epoch whose raise was ever committed
	crashes  uint8 // that may still happen
	losses   uint8
	restarts uint8

	orders        orders
	agent         agent
	agentRestarts uint8
}

// move is one thing that happens.
type move struct {
	kind  moveKind
	owner uint8 // of whom
	of    uint8 // the owner whose session a raise ends
	done  uint8 // what that owner had done before
	task  task
	op    Op // of a step

	epoch, lease uint8 // of an order
	agentOp      AgentOp
	refused      bool // by the agent

	seen event
	bad  string // the property that it breaks
	next world
}

type moveKind uint8

const (
	steps moveKind = iota
	stopsFenced
	stands // a raise finds the fence at its epoch or above
	sends
	crashes
	loses
	ends
	rollsBack
	databaseRestarts
	arrives // an order
	agentSteps
	agentRestarts
)

// String names the move. It is for counterexamples; an exploration needs no names.
func (m move) String() string {
	if m.kind >= arrives {
		return m.agentName()
	}
	who, what := fmt.Sprintf("owner %d", m.owner+1), "its raise"
	if m.task == mutating {
		what = fmt.Sprintf("its mutation %d", m.done)
	}
	switch m.kind {
	case steps:
		return fmt.Sprintf("%s: %s %s", who, what, m.op)
	case stopsFenced:
		return fmt.Sprintf("%s: %s %s, FENCED", who, what, m.op)
	case stands:
		return fmt.Sprintf("%s: %s %s, the fence stands", who, what, m.op)
	case sends:
		return fmt.Sprintf("%s sends %s", who, what)
	case crashes:
		return who + " crashes"
	case loses:
		return fmt.Sprintf("%s loses the connection of %s", who, what)
	case ends:
		return fmt.Sprintf("the raise of %s ends the session of owner %d", who, m.of+1)
	case rollsBack:
		return fmt.Sprintf("the abandoned session of %s rolls back", who)
	}
	return "the database restarts"
}

// event classifies moves, so that an exploration can tell that it was not an idle one.
type event uint8

const (
	other event = iota
	raised
	mutated
	fenced
	ended // a session was ended by a raise
	crashed
	lost
	restarted
	started // a job, by the agent
	older   // an order refused for its epoch
	again   // one refused because its lease was started
	agentRestarted
	events
)

var eventNames = [...]string{"", "raises", "mutations", "FENCED", "sessions ended by a raise", "crashes", "lost replies", "restarts of the database",
	"jobs started", "orders of an older epoch", "orders repeated", "restarts of the agent"}

// machine is a protocol within bounds.
type machine struct {
	protocol Protocol
	bounds   Bounds
}

func (m machine) program(t task) []Op {
	if t == raising {
		return m.protocol.Raise
	}
	return m.protocol.Mutate
}

// moves lists everything that can happen in w.
func (m machine) moves(w *world, add func(*move)) {
	for i := range m.bounds.Owners {
		m.ownerMoves(w, i, add)
		for j := range w.sessions[i] {
			if w.sessions[i][j].task != idle {
				m.sessionMoves(w, i, j, add)
			}
		}
	}
	if m.bounds.Agent {
		m.agentMoves(w, add)
	}
	if w.restarts > 0 {
		mv := move{kind: databaseRestarts, seen: restarted, next: *w}
		mv.next.restarts--
		for i := range m.bounds.Owners {
			for j := range mv.next.sessions[i] {
				if mv.next.sessions[i][j].task != idle {
					mv.abort(i, j)
				}
			}
		}
		add(&mv)
	}
}

// ownerMoves: it sends its next transaction, crashes, or loses the link to its session.
func (m machine) ownerMoves(w *world, i int, add func(*move)) {
	o, s := w.owners[i], w.sessions[i][0]
	if o.gone {
		return
	}
	mv := move{owner: uint8(i), done: o.done, task: s.task, next: *w}
	if w.crashes > 0 {
		mv := mv
		mv.kind, mv.seen = crashes, crashed
		mv.next.crashes--
		mv.next.owners[i].gone = true
		mv.next.sessions[i][0].heard = false
		add(&mv)
	}
	switch {
	case s.task == idle:
		mv.kind, mv.task = sends, mutating
		if o.done == 0 {
			mv.task = raising
		}
		mv.next.sessions[i][0] = session{task: mv.task, heard: true}
		add(&mv)
	case w.losses > 0 && w.sessions[i][1].task == idle:
		mv.kind, mv.seen = loses, lost
		mv.next.losses--
		s.heard = false
		mv.next.sessions[i][0], mv.next.sessions[i][1] = session{}, s
		// A raise is repeated on another session. A mutation's outcome is unknown: the epoch is spent.
		mv.next.owners[i].gone = s.task == mutating
		add(&mv)
	}
}

// sessionMoves: a session takes its next step, is ended by a raise that waits for
// it, or notices that nobody listens any more.
func (m machine) sessionMoves(w *world, i, j int, add func(*move)) {
	s := w.sessions[i][j]
	if wait := lockOf(m.program(s.task)[s.pc]); wait != Snap && !m.free(w, i, j, wait, add) {
		return
	}
	mv := move{owner: uint8(i), done: w.owners[i].done, task: s.task, next: *w}
	if !s.heard && !s.placed {
		mv := mv
		mv.kind = rollsBack
		mv.abort(i, j)
		add(&mv)
	}
	m.step(&mv, i, j)
	add(&mv)
}

// free reports whether nobody holds a lock that conflicts. A raise that waits may
// end the sessions that hold the shared lock; what is committed they cannot lose.
func (m machine) free(w *world, i, j int, wait Op, add func(*move)) bool {
	free := true
	for a := range m.bounds.Owners {
		for b, other := range w.sessions[a] {
			if a == i && b == j || !conflicts(other.lock, wait) {
				continue
			}
			free = false
			if wait == LockExclusive && other.lock == LockShared && !other.placed {
				mv := move{kind: ends, owner: uint8(i), of: uint8(a), task: raising, seen: ended, next: *w}
				mv.abort(a, b)
				add(&mv)
			}
		}
	}
	return free
}

// step runs the next step of a session and the silent ones behind it.
func (m machine) step(mv *move, i, j int) {
	w := &mv.next
	s := &w.sessions[i][j]
	program, epoch := m.program(s.task), uint8(i+1)
	mv.kind, mv.op = steps, program[s.pc]
	for taken := false; int(s.pc) < len(program) && (!taken || program[s.pc].silent()); taken = true {
		op := program[s.pc]
		s.pc++
		switch op {
		case Snap, Latest:
			s.snap = w.fence
		case LockShared, LockExclusive, RowKeyShare, RowShare, RowUpdate:
			s.lock = op
		case Check:
			if s.snap != epoch {
				mv.kind, mv.seen = stopsFenced, fenced
				m.answer(w, i, j, false)
				return
			}
		case CheckUp:
			if s.snap >= epoch {
				mv.kind = stands
				if s.snap > epoch {
					mv.seen = fenced
				}
				m.answer(w, i, j, s.snap == epoch)
				return
			}
		case PutFence:
			s.fence = true
		case Write:
			s.wrote = true
		case Commit:
			mv.commit(s, epoch)
			if s.wrote && m.bounds.Agent {
				w.orders.send(i, w.owners[i].done)
			}
		case Release:
			s.lock = Snap
		case Tell:
			s.told = true
		}
	}
	if int(s.pc) == len(program) {
		m.answer(w, i, j, true)
	}
}

// commit makes the writes of a session visible and notes which property that breaks.
func (mv *move) commit(s *session, epoch uint8) {
	w := &mv.next
	if s.fence {
		mv.seen = raised
		if epoch < w.high {
			mv.bad = fmt.Sprintf("the fence goes down from epoch %d to %d", w.high, epoch)
		}
		w.fence, w.high = epoch, max(w.high, epoch)
	}
	if s.wrote {
		mv.seen = mutated
		if epoch < w.high {
			mv.bad = fmt.Sprintf("a mutation of epoch %d commits after the fence was raised to %d", epoch, w.high)
		}
	}
	s.placed = s.fence || s.wrote
}

// answer ends a session; its owner goes on if it still listens.
func (m machine) answer(w *world, i, j int, ok bool) {
	heard := w.sessions[i][j].heard
	w.sessions[i][j] = session{}
	if !heard {
		return
	}
	o := &w.owners[i]
	if !ok {
		o.gone = true
		return
	}
	o.done++
	o.gone = int(o.done) > m.bounds.Mutations
}

// abort ends a session, whatever it was doing. What is committed stays.
func (mv *move) abort(i, j int) {
	s := mv.next.sessions[i][j]
	if s.told && !s.placed {
		mv.bad = fmt.Sprintf("epoch %d was told that a mutation is done which is rolled back", i+1)
	}
	mv.next.sessions[i][j] = session{}
	if s.heard && s.task == mutating {
		mv.next.owners[i].gone = true // the outcome is unknown
	}
}

// lockOf is the lock that a step waits for; Snap for none.
func lockOf(op Op) Op {
	switch op {
	case LockShared, LockExclusive, RowKeyShare, RowShare, RowUpdate:
		return op
	}
	return Snap
}

// conflicts is the part of PostgreSQL's tables of lock modes that is used here.
func conflicts(held, wanted Op) bool {
	switch wanted {
	case LockShared:
		return held == LockExclusive
	case LockExclusive:
		return held == LockShared || held == LockExclusive
	case RowShare:
		return held == RowUpdate
	case RowUpdate:
		return held == RowShare || held == RowUpdate
	}
	return false
}
