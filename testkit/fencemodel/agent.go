// The agent of the model: it carries out orders that come late, in any order and more than once, and it may restart at any step.

package fencemodel

import "fmt"

// Each committed mutation is a lease with an order to an agent, and a newer owner's
// mutation repeats the orders of all older leases under its own epoch. An order that
// was sent once may arrive at any time and any number of times. There is one agent,
// which takes one order after the other; what it has not written down is gone when it
// restarts. The daemon's grant between acceptance and start is left out: here it never refuses.

// AgentOp is one step of an agent with an order. It may restart between any two.
type AgentOp uint8

// The steps.
const (
	// CheckMark refuses an order of an epoch below the mark; RaiseMark writes the
	// order's epoch down as the mark.
	CheckMark AgentOp = iota
	RaiseMark
	// CheckStarts refuses a lease that is noted, which is an answer as well; NoteStart notes it.
	CheckStarts
	NoteStart
	// Accept answers the order.
	Accept
	// Run is when the job's processes begin.
	Run
)

var agentOpNames = [...]string{"checks its mark", "raises its mark", "checks its starts", "notes the start", "accepts", "runs it"}

func (o AgentOp) String() string { return agentOpNames[o] }

// silent steps change nothing, so they are taken together with the step before them.
func (o AgentOp) silent() bool { return o == CheckMark || o == CheckStarts }

// RightAgent is the agent of the product.
func RightAgent() []AgentOp {
	return []AgentOp{CheckMark, RaiseMark, CheckStarts, Accept, NoteStart, Run}
}

// WrongAgents are those with one fault each, beside owners that have none.
func WrongAgents() []Protocol {
	with := func(name string, steps ...AgentOp) Protocol {
		p := Right()
		p.Name, p.Agent = name, steps
		return p
	}
	return []Protocol{
		with("an agent that ignores epochs", RaiseMark, CheckStarts, Accept, NoteStart, Run),
		with("a mark that is raised after the answer", CheckMark, CheckStarts, Accept, RaiseMark, NoteStart, Run),
		with("an agent that notes no starts", CheckMark, RaiseMark, Accept, Run),
		with("a start that is noted once the job runs", CheckMark, RaiseMark, CheckStarts, Accept, Run, NoteStart),
	}
}

// maxLeases is how many leases an owner makes at most where there is an agent.
const maxLeases = 2

// orders are the leases ordered under each epoch, as bits.
type orders [maxOwners]uint8

// send puts the orders of a committed mutation under way.
func (o *orders) send(owner int, mutation uint8) {
	for older := range owner {
		o[owner] |= o[older]
	}
	o[owner] |= 1 << (owner*maxLeases + int(mutation) - 1)
}

// agent is what it has on its disk, the order at hand, and what must be true of it.
type agent struct {
	mark  uint8 // on disk
	noted uint8 // leases, on disk

	busy         bool
	epoch, lease uint8 // of the order at hand
	pc           uint8

	seen uint8 // the highest epoch of any order it has answered for
	ran  uint8 // leases whose processes ever began
}

// agentMoves: an order arrives, the agent takes its next step, or it restarts and forgets what it had at hand.
func (m machine) agentMoves(w *world, add func(*move)) {
	mv := move{kind: agentSteps, next: *w}
	if w.agent.busy {
		mv.epoch, mv.lease = w.agent.epoch, w.agent.lease
		if w.agentRestarts > 0 {
			mv := mv
			mv.kind, mv.seen = agentRestarts, agentRestarted
			mv.next.agentRestarts--
			mv.next.agent.put()
			add(&mv)
		}
		m.agentStep(&mv)
		add(&mv)
		return
	}
	mv.kind = arrives
	for i, leases := range w.orders {
		for lease := uint8(0); leases>>lease != 0; lease++ {
			if leases>>lease&1 == 0 {
				continue
			}
			mv := mv
			mv.epoch, mv.lease = uint8(i+1), lease
			a := &mv.next.agent
			a.busy, a.epoch, a.lease = true, mv.epoch, lease
			m.agentSilent(&mv)
			add(&mv)
		}
	}
}

// put ends the work on an order.
func (a *agent) put() { a.busy, a.epoch, a.lease, a.pc = false, 0, 0, 0 }

// agentStep takes the next step and the silent ones behind it.
func (m machine) agentStep(mv *move) {
	a := &mv.next.agent
	bit := uint8(1) << a.lease
	mv.agentOp = m.protocol.Agent[a.pc]
	a.pc++
	switch mv.agentOp {
	case RaiseMark:
		a.mark = max(a.mark, a.epoch)
	case NoteStart:
		a.noted |= bit
	case Accept, Run:
		if a.epoch < a.seen {
			mv.bad = fmt.Sprintf("the agent %s: an order of epoch %d, though it has seen epoch %d", mv.agentOp, a.epoch, a.seen)
		}
		a.seen = max(a.seen, a.epoch)
		if mv.agentOp == Accept {
			break
		}
		mv.seen = started
		if a.ran&bit != 0 {
			mv.bad = fmt.Sprintf("the agent runs %s twice", leaseName(a.lease))
		}
		a.ran |= bit
	}
	m.agentSilent(mv)
}

func (m machine) agentSilent(mv *move) {
	a := &mv.next.agent
	for ; int(a.pc) < len(m.protocol.Agent) && m.protocol.Agent[a.pc].silent(); a.pc++ {
		switch {
		case m.protocol.Agent[a.pc] == CheckMark && a.epoch < a.mark:
			mv.seen, mv.refused = older, true
		case m.protocol.Agent[a.pc] == CheckStarts && a.noted>>a.lease&1 != 0:
			mv.seen, mv.refused = again, true
			a.seen = max(a.seen, a.epoch)
		}
		if mv.refused {
			a.put()
			return
		}
	}
	if int(a.pc) == len(m.protocol.Agent) {
		a.put()
	}
}

func leaseName(lease uint8) string {
	return fmt.Sprintf("lease %d of owner %d", lease%maxLeases+1, lease/maxLeases+1)
}

// agentName names the moves of the agent.
func (m move) agentName() string {
	text := fmt.Sprintf("the order of epoch %d for %s", m.epoch, leaseName(m.lease))
	switch m.kind {
	case arrives:
		text += " arrives"
	case agentRestarts:
		text = "the agent restarts with " + text + " at hand"
	default:
		text = fmt.Sprintf("%s: the agent %s", text, m.agentOp)
	}
	if m.refused {
		text += ", refused"
	}
	return text
}
