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
}

// move is one thing that happens.
type move struct {
	what string
	next world
	seen event  // for the count of what was reached
	bad  string // the property that it breaks
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
	events
)

var eventNames = [...]string{"", "raises", "mutations", "FENCED", "sessions ended by a raise", "crashes", "lost replies", "restarts of the database"}

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
func (m machine) moves(w world, add func(move)) {
	for i := range m.bounds.Owners {
		m.ownerMoves(w, i, add)
		for j := range w.sessions[i] {
			if w.sessions[i][j].task != idle {
				m.sessionMoves(w, i, j, add)
			}
		}
	}
	if w.restarts > 0 {
		next := w
		next.restarts--
		bad := ""
		for i := range m.bounds.Owners {
			for j := range next.sessions[i] {
				if next.sessions[i][j].task != idle {
					bad = first(bad, m.abort(&next, i, j))
				}
			}
		}
		add(move{"the database restarts", next, restarted, bad})
	}
}

// ownerMoves: it sends its next transaction, crashes, or loses the link to its session.
func (m machine) ownerMoves(w world, i int, add func(move)) {
	o, s := w.owners[i], w.sessions[i][0]
	if o.gone {
		return
	}
	if w.crashes > 0 {
		next := w
		next.crashes--
		next.owners[i].gone = true
		next.sessions[i][0].heard = false
		add(move{name(i) + " crashes", next, crashed, ""})
	}
	if s.task == idle {
		next := w
		t := mutating
		if o.done == 0 {
			t = raising
		}
		next.sessions[i][0] = session{task: t, heard: true}
		add(move{fmt.Sprintf("%s sends %s", name(i), m.describe(t, o.done)), next, other, ""})
		return
	}
	if w.losses > 0 && w.sessions[i][1].task == idle {
		next := w
		next.losses--
		s.heard = false
		next.sessions[i][0], next.sessions[i][1] = session{}, s
		// A raise is repeated on another session. A mutation's outcome is unknown: the epoch is spent.
		next.owners[i].gone = s.task == mutating
		add(move{name(i) + " loses the connection of " + m.describe(s.task, o.done), next, lost, ""})
	}
}

func (m machine) describe(t task, done uint8) string {
	if t == raising {
		return "its raise"
	}
	return fmt.Sprintf("its mutation %d", done)
}

func name(i int) string { return fmt.Sprintf("owner %d", i+1) }

// sessionMoves: a session takes its next step, is ended by a raise that waits for
// it, or notices that nobody listens any more.
func (m machine) sessionMoves(w world, i, j int, add func(move)) {
	s := w.sessions[i][j]
	op := m.program(s.task)[s.pc]
	if wait := lockOf(op); wait != Snap {
		free := true
		for a := range m.bounds.Owners {
			for b := range w.sessions[a] {
				if (a != i || b != j) && conflicts(w.sessions[a][b].lock, wait) {
					free = false
					if wait == LockExclusive && w.sessions[a][b].lock == LockShared && !w.sessions[a][b].placed {
						next := w
						bad := m.abort(&next, a, b)
						add(move{fmt.Sprintf("the raise of %s ends the session of %s", name(i), name(a)), next, ended, bad})
					}
				}
			}
		}
		if !free {
			return
		}
	}
	add(m.step(w, i, j))
	if !s.heard && !s.placed {
		next := w
		bad := m.abort(&next, i, j)
		add(move{"the abandoned session of " + name(i) + " rolls back", next, other, bad})
	}
}

// step runs the next step of a session and the silent ones behind it.
func (m machine) step(w world, i, j int) move {
	s := &w.sessions[i][j]
	program, epoch := m.program(s.task), uint8(i+1)
	mv := move{what: fmt.Sprintf("%s: %s %s", name(i), m.describe(s.task, w.owners[i].done), program[s.pc])}
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
				m.answer(&w, i, j, false)
				mv.what, mv.next, mv.seen = mv.what+", FENCED", w, fenced
				return mv
			}
		case CheckUp:
			if s.snap >= epoch {
				m.answer(&w, i, j, s.snap == epoch)
				mv.what, mv.next = mv.what+", the fence stands", w
				if s.snap > epoch {
					mv.seen = fenced
				}
				return mv
			}
		case PutFence:
			s.fence = true
		case Write:
			s.wrote = true
		case Commit:
			mv.seen, mv.bad = commit(&w, s, epoch)
		case Release:
			s.lock = Snap
		case Tell:
			s.told = true
		}
	}
	if int(s.pc) == len(program) {
		m.answer(&w, i, j, true)
	}
	mv.next = w
	return mv
}

// commit makes the writes visible and says which property that breaks.
func commit(w *world, s *session, epoch uint8) (seen event, bad string) {
	if s.fence {
		seen = raised
		if epoch < w.high {
			bad = fmt.Sprintf("the fence goes down from epoch %d to %d", w.high, epoch)
		}
		w.fence, w.high = epoch, max(w.high, epoch)
	}
	if s.wrote {
		seen = mutated
		if epoch < w.high {
			bad = fmt.Sprintf("a mutation of epoch %d commits after the fence was raised to %d", epoch, w.high)
		}
	}
	s.placed = s.fence || s.wrote
	return seen, bad
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

// abort rolls a session back, whatever it was doing. What is committed stays.
func (m machine) abort(w *world, i, j int) (bad string) {
	s := w.sessions[i][j]
	if s.told && !s.placed {
		bad = fmt.Sprintf("epoch %d was told that a mutation is done which is rolled back", i+1)
	}
	w.sessions[i][j] = session{}
	if s.heard && s.task == mutating {
		w.owners[i].gone = true // the outcome is unknown
	}
	return bad
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
	either := func(a, b Op) bool { return held == a && wanted == b || held == b && wanted == a }
	return either(LockShared, LockExclusive) || either(LockExclusive, LockExclusive) ||
		either(RowShare, RowUpdate) || either(RowUpdate, RowUpdate)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
