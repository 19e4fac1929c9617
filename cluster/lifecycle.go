// The life of one role in this process, as one pure function: event in, new state and outputs out.

package cluster

import "github.com/forgeyard/forgeyard/fsm"

// lifecycle is everything that decides about one role here. It is a comparable
// value without clock or pointers, so that its whole state space can be explored.
type lifecycle struct {
	view      grant      // what the newest committed view says of the role
	confirmed bool       // the view is known to be current
	declined  debt       // set when this process wants no grant: it closes or cannot run the role
	tree      grant      // the one actor tree here (Ours always true); zero when there is none
	phase     GuardState // of tree: Granted, Fenced, Active, or Revoked while it ends
	taken     bool       // the actor system has been told of tree and owes a TreeEnded
	floor     fsm.Epoch  // highest epoch that was ever minted or declined here; it is never minted again
	debt      debt       // the command that ends the spent epoch view.epoch
	ask       ask        // the proposal for it
	alarmed   bool       // the exit was ordered
}

// grant is the view's word about one role.
type grant struct {
	epoch      fsm.Epoch
	generation fsm.Generation
	ours       bool // this node and this incarnation own it
}

// debt is the committed command that a spent epoch still needs.
type debt struct {
	kind         debtKind
	code, reason string // of a release
}

type debtKind uint8

const (
	debtNone    debtKind = iota
	debtBump             // BumpEpoch: this process can go on under a new epoch
	debtRelease          // ReleaseRole: it cannot
)

// ask is the newest proposal for a spent epoch.
type ask struct {
	epoch fsm.Epoch
	kind  debtKind
	out   bool // in flight; otherwise it waits for the retry timer
}

type eventKind uint8

const (
	evView        eventKind = iota // grant: a newer view
	evConfirmed                    // the view is current
	evUnconfirmed                  // it can no longer be proved current
	evDecline                      // code, reason: give up and take no grant any more
	evTaken                        // epoch: the actor system learned of the tree
	evFenced                       // epoch: the database refused the epoch
	evUnknown                      // epoch: a write's outcome is unknown
	evRaised                       // epoch: the fence is raised
	evActive                       // epoch: reconciled
	evFailed                       // epoch, code, reason: cannot become or stay active
	evEnded                        // epoch: Terminated, and every loop goroutine has ended
	evOverdue                      // epoch: the tree did not end within the stop bound
	evCommitted                    // epoch: the proposal was committed
	evUncertain                    // epoch: the proposal failed, or nobody knows
	evRefused                      // epoch: the state machine refused the proposal
	evRetry                        // epoch: the back-off is over
)

type event struct {
	kind         eventKind
	grant        grant     // evView
	epoch        fsm.Epoch // all events about a tree or a proposal
	code, reason string
}

type outputKind uint8

const (
	outMint     outputKind = iota // make the guard of epoch; the tree becomes desired
	outFence                      // the guard may write
	outActivate                   // loops may work
	outRevoke                     // inactive, cancel, invalidate; cause says why
	outPoison                     // the tree is not desired any more
	outArmStop                    // evOverdue after the stop bound
	outSpent                      // the epoch is spent (trace)
	outPropose                    // propose debt for epoch
	outArmRetry                   // evRetry after the back-off
	outExit                       // alarm, and end the process
)

type output struct {
	kind  outputKind
	epoch fsm.Epoch
	cause cause // outRevoke
	debt  debt  // outPropose
}

// cause says why a guard was revoked.
type cause uint8

const (
	causeMoved       cause = iota + 1 // the view gave the role away
	causeRegenerated                  // the cluster was recovered into another generation
	causeUnconfirmed
	causeFenced
	causeUnknown
	causeGaveUp
	causeDied // the tree ended without being told to
	causeDeclined
)

// step is the role lifecycle. One row for each phase of the tree:
//
//	phase    event                     next     outputs                         epoch afterwards
//	-------- ------------------------- -------- ------------------------------- -----------------
//	none     view is ours above floor, granted  mint                            in use
//	         confirmed, not declined
//	granted  raised                    fenced   fence                           in use
//	granted, active                    active   activate                        in use
//	 fenced
//	live     view gives it elsewhere   ending   revoke, poison, arm stop        passed
//	live     unconfirmed, unknown      ending   revoke, poison, arm stop        spent: bump
//	fenced,  fenced                    ending   revoke, poison, arm stop        spent: bump
//	 active
//	granted  fenced                    ending   revoke, poison, arm stop        spent: release
//	live     failed, declined          ending   revoke, poison, arm stop        spent: release
//	live     ended                     none     revoke, poison                  spent: bump
//	ending   ended                     none     (mint, when the next is ours)
//	ending   overdue                   ending   exit
//	any      view is ours above floor, same                                     spent: release
//	         declined
//
// (live = granted, fenced or active.) Beside the tree, a spent epoch is one that
// the view still gives to this process though it may not be used any more:
//
//	unasked         → propose; in flight
//	in flight       committed, uncertain → wait, arm retry
//	in flight       refused              → wait, arm retry; a refused bump becomes a release
//	waiting         retry                → propose; in flight
//	any             the view has passed the epoch → nothing owed
//
// Invariants: an epoch is minted at most once, only from the current, confirmed
// view, and only when no tree exists; a revoke precedes its poison and the next
// mint; a command is proposed only for an epoch that no guard may use.
func step(s lifecycle, e event) (lifecycle, []output) {
	m := machine{lifecycle: s}
	m.apply(e)
	m.settle()
	return m.lifecycle, m.out
}

// machine is one step at work.
type machine struct {
	lifecycle
	out []output
}

// apply takes the event in; settle draws the conclusions that hold whatever the event was.
func (m *machine) apply(e event) {
	mine := m.live() && e.epoch == m.tree.epoch // the event speaks of the guard in use
	switch e.kind {
	case evTaken, evRaised, evActive, evFailed:
		m.taken = m.taken || mine
	}
	switch e.kind {
	case evView:
		m.view = e.grant
	case evConfirmed:
		m.confirmed = true
	case evUnconfirmed:
		m.confirmed = false
		if m.live() {
			m.spend(causeUnconfirmed, debt{kind: debtBump})
		}
	case evDecline:
		m.declined = debt{debtRelease, e.code, e.reason}
	case evFenced:
		if !mine {
			return
		}
		owed := debt{kind: debtBump}
		if m.phase == GuardGranted {
			// The fence row is above or beside this epoch. A new epoch would climb
			// over it, and hide lost Raft state or a second fleet.
			owed = debt{debtRelease, ErrFenced.Code, "the database refused to raise the fence to this epoch"}
		}
		m.spend(causeFenced, owed)
	case evUnknown:
		if mine {
			m.spend(causeUnknown, debt{kind: debtBump})
		}
	case evRaised:
		if mine && m.phase == GuardGranted {
			m.phase = GuardFenced
			m.emit(output{kind: outFence, epoch: e.epoch})
		}
	case evActive:
		if mine && m.phase != GuardActive {
			m.phase = GuardActive
			m.emit(output{kind: outActivate, epoch: e.epoch})
		}
	case evFailed:
		if mine {
			m.spend(causeGaveUp, debt{debtRelease, e.code, e.reason})
		}
	case evEnded:
		if mine {
			m.spend(causeDied, debt{kind: debtBump})
		}
		if e.epoch == m.tree.epoch {
			m.bury()
		}
	case evOverdue:
		if m.phase == GuardRevoked && e.epoch == m.tree.epoch && !m.alarmed {
			m.alarmed = true
			m.emit(output{kind: outExit, epoch: e.epoch})
		}
	case evCommitted, evUncertain, evRefused:
		if !m.ask.out || e.epoch != m.ask.epoch {
			return
		}
		if e.kind == evRefused && m.ask.kind == debtBump && m.debt.kind == debtBump {
			// Not a matter of time (the view would have passed): the member may not hold roles now.
			m.debt = debt{debtRelease, ErrNotRenewed.Code, ErrNotRenewed.Message}
		}
		m.ask.out = false
		m.emit(output{kind: outArmRetry, epoch: e.epoch})
	case evRetry:
		if m.spent() && !m.ask.out && e.epoch == m.ask.epoch {
			m.propose()
		}
	}
}

// settle draws the conclusions.
func (m *machine) settle() {
	if m.live() && m.view != m.tree {
		if m.view.epoch == m.tree.epoch && m.view.ours {
			m.spend(causeRegenerated, debt{kind: debtBump})
		} else {
			m.revoke(causeMoved)
		}
	}
	if m.live() && m.declined.kind != debtNone {
		m.spend(causeDeclined, m.declined)
	}
	if m.phase == GuardRevoked && !m.taken {
		m.bury() // nobody heard of this tree, so nobody will report its end
	}
	fresh := m.view.ours && m.view.epoch > m.floor
	switch {
	case fresh && m.declined.kind != debtNone:
		m.floor = m.view.epoch
	case fresh && m.confirmed && m.phase == GuardNone:
		m.floor, m.tree, m.phase = m.view.epoch, m.view, GuardGranted
		m.emit(output{kind: outMint, epoch: m.tree.epoch})
	}
	if !m.spent() {
		m.debt, m.ask = debt{}, ask{}
		return
	}
	if m.declined.kind != debtNone {
		m.debt = m.declined
	}
	if m.debt.kind == debtNone {
		m.debt = debt{kind: debtBump}
	}
	if m.ask.epoch != m.view.epoch {
		m.propose()
	}
}

// live reports whether a guard is in use.
func (s lifecycle) live() bool { return s.phase >= GuardGranted && s.phase <= GuardActive }

// wanted is the epoch whose tree should run; 0 for none.
func (s lifecycle) wanted() fsm.Epoch {
	if !s.live() {
		return 0
	}
	return s.tree.epoch
}

// spent reports whether the view still gives this process an epoch it may not use any more.
func (s lifecycle) spent() bool {
	return s.view.ours && s.view.epoch <= s.floor && !(s.live() && s.tree == s.view)
}

// spend revokes the guard in use without an order of the view.
func (m *machine) spend(c cause, owed debt) {
	m.debt = owed
	m.revoke(c)
	m.emit(output{kind: outSpent, epoch: m.tree.epoch})
}

func (m *machine) revoke(c cause) {
	m.phase = GuardRevoked
	m.emit(output{kind: outRevoke, epoch: m.tree.epoch, cause: c})
	m.emit(output{kind: outPoison, epoch: m.tree.epoch})
	if m.taken {
		m.emit(output{kind: outArmStop, epoch: m.tree.epoch})
	}
}

// bury forgets the tree after its end.
func (m *machine) bury() { m.tree, m.phase, m.taken = grant{}, GuardNone, false }

func (m *machine) propose() {
	m.ask = ask{epoch: m.view.epoch, kind: m.debt.kind, out: true}
	m.emit(output{kind: outPropose, epoch: m.view.epoch, debt: m.debt})
}

func (m *machine) emit(o output) { m.out = append(m.out, o) }
