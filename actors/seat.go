// The seat of a role: the one place a tree of the role can occupy in this process.

package actors

import (
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// seat outlives the actors: a supervisor that is restarted, or replaced with
// its parent, finds here the tree whose loops still run. That makes "never two
// trees" a matter of construction.
type seat struct {
	spec RoleSpec

	mu      sync.Mutex
	tree    *tree     // until its actor has stopped and its loops have ended
	ending  bool      // the tree was told to end
	last    fsm.Epoch // the highest epoch that had the seat or was passed over
	told    fsm.Epoch // the highest epoch the service told us of
	closed  bool      // the system stops
	crashes failures
	barren  int // trees in a row that ended before they were active
}

func newSeat(spec RoleSpec) *seat { return &seat{spec: spec} }

// wanted asks the service which epoch should have a tree. The service counts on
// hearing of the end of every epoch it has told us of, so one that passed
// before a tree was planted ends here. A closed seat wants nothing and does not
// ask.
func (s *seat) wanted(trees cluster.Trees) fsm.Epoch {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0
	}
	want := trees.Desired(s.spec.Role).Epoch
	s.mu.Lock()
	passed := fsm.Epoch(0)
	if s.told > s.last && s.told != want {
		passed, s.last = s.told, s.told
	}
	s.told = max(s.told, want)
	late := fsm.Epoch(0) // the seat closed while the service was asked
	if s.closed && s.told > s.last {
		late, s.last = s.told, s.told
	}
	s.mu.Unlock()
	if passed != 0 {
		trees.Report(s.spec.Role, passed, cluster.TreeEnded, "", "")
	}
	if late != 0 {
		s.decline(trees, late)
		return 0
	}
	return want
}

// decline gives up an epoch that will have no tree because the node stops.
func (s *seat) decline(trees cluster.Trees, epoch fsm.Epoch) {
	trees.Report(s.spec.Role, epoch, cluster.TreeFailed, CodeNodeStopping, "the node is stopping")
	trees.Report(s.spec.Role, epoch, cluster.TreeEnded, "", "")
}

// step is what a role supervisor does next.
type step uint8

const (
	stepNothing step = iota
	stepSpawn
	stepPoison
)

// occupancy is what decides the next step.
type occupancy struct {
	have   fsm.Epoch // the tree in the seat; 0: none
	last   fsm.Epoch // the highest epoch that ever had the seat or was passed over
	ending bool
	closed bool
}

// next is the whole policy of a role supervisor, a pure function:
//
//	seat      wanted   → step
//	ending    any      → nothing: the next tree waits for the end of this one
//	e         e        → nothing
//	e         other    → poison e
//	empty     > last   → spawn
//	empty     ≤ last   → nothing: one epoch, one tree
//	closed    any      → never spawn
func (o occupancy) next(want fsm.Epoch) step {
	switch {
	case o.have != 0 && !o.ending && o.have != want:
		return stepPoison
	case o.have == 0 && !o.closed && want > o.last:
		return stepSpawn
	}
	return stepNothing
}

// decide returns the next step and the tree it is about. A poison step marks the tree as ending.
func (s *seat) decide(want fsm.Epoch) (step, *tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := occupancy{last: s.last, ending: s.ending, closed: s.closed}
	if s.tree != nil {
		o.have = s.tree.epoch
	}
	next := o.next(want)
	if next == stepPoison {
		s.ending = true
	}
	return next, s.tree
}

// take seats a new tree; nil when the seat is taken or closed.
func (s *seat) take(plant func() *tree) *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree != nil || s.closed {
		return nil
	}
	s.tree, s.ending = plant(), false
	s.last = s.tree.epoch
	return s.tree
}

func (s *seat) free(t *tree) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree == t {
		s.tree, s.ending = nil, false
	}
	s.barren++
	if t.active.Load() {
		s.barren = 0
	}
}

// pause is how long a new tree waits before it begins: after two trees that
// never became active it backs off, so a role that loses every epoch at once
// does not commit new ones without end.
func (s *seat) pause(b Backoff) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barren < 2 {
		return 0
	}
	return b.wait(s.barren - 2)
}

// close keeps every further tree out. It returns the tree that is still to be
// told to end, and an epoch that will have none though the service counts on one.
func (s *seat) close() (*tree, fsm.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	passed := fsm.Epoch(0)
	if s.told > s.last {
		passed, s.last = s.told, s.told
	}
	if s.ending {
		return nil, passed
	}
	s.ending = s.tree != nil
	return s.tree, passed
}

// current returns the tree in the seat, nil when there is none.
func (s *seat) current() *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree
}

// crashed marks the tree of a failed actor as ending and returns it.
func (s *seat) crashed(pid *actor.PID) *tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tree == nil || processID(s.tree.path()) != pid.GetId() {
		return nil
	}
	s.ending = true
	return s.tree
}

// failed notes a crash of the role and reports whether it is within the budget.
func (s *seat) failed(now time.Time, b Budget) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes.budget = b
	return s.crashes.add(now)
}

// vacant returns a channel that closes when the present tree has ended.
func (s *seat) vacant() <-chan struct{} {
	if t := s.current(); t != nil {
		return t.over
	}
	none := make(chan struct{})
	close(none)
	return none
}

// treeOf returns the living tree of a role.
func (s *System) treeOf(role fsm.Role) *tree {
	for _, seat := range s.seats {
		if seat.spec.Role == role {
			return seat.current()
		}
	}
	return nil
}

// retire gives a role up because the node stops, and ends its tree.
func (s *System) retire(seat *seat) {
	t, passed := seat.close()
	if t != nil {
		t.giveUp(CodeNodeStopping, "the node is stopping")
		t.poison()
	}
	if passed != 0 {
		seat.decline(s.cfg.Trees, passed)
	}
}
