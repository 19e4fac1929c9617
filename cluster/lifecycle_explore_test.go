// The explorer of the role lifecycle: every state that any environment can drive the function into.

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
)

// world is the function's state and all that surrounds it: the committed state,
// the actor system, the proposals under way and the timers. It is comparable.
type world struct {
	s         lifecycle
	committed grant
	guard     fsm.Epoch // the guard that may be used now
	minted    fsm.Epoch // the last one minted
	desired   fsm.Epoch // the tree that the actor system is asked to run
	tree      fsm.Epoch // the tree that it runs
	dying     bool      // the tree was poisoned
	calls     [2]call
	retry     fsm.Epoch // armed retry
	stop      fsm.Epoch // armed stop bound
	exited    bool
}

// call is a proposal. A lost one may still be applied after its caller was told of a failure.
type call struct {
	epoch  fsm.Epoch
	kind   debtKind
	waited bool // its caller still waits
}

// edge is one thing that can happen in a world.
type edge struct {
	name string
	kind edgeKind
	next world
}

// edgeKind says who must be willing for an edge to happen.
type edgeKind uint8

const (
	hostile    edgeKind = iota // only an adversary does it
	fair                       // it happens sooner or later
	renewing                   // happens where the cluster renews epochs of this member
	unrenewing                 // happens where it refuses to
)

type stepFunc func(lifecycle, event) (lifecycle, []output)

type explorer struct {
	step       stepFunc
	recoveries bool // the generation rises now and then
	late       bool // proposals whose callers gave up may still be applied
}

// feed runs one event and plays its outputs into the world, checking each.
func (x explorer) feed(w world, e event) (world, error) {
	var out []output
	w.s, out = x.step(w.s, e)
	for _, o := range out {
		if err := w.play(o); err != nil {
			return w, fmt.Errorf("%w (output %+v)", err, o)
		}
	}
	return w, nil
}

func (w *world) play(o output) error {
	switch o.kind {
	case outMint:
		switch {
		case w.tree != 0:
			return fmt.Errorf("minted while tree %d exists", w.tree)
		case w.guard != 0:
			return fmt.Errorf("minted while guard %d is in use", w.guard)
		case !w.s.view.ours || w.s.view.epoch != o.epoch:
			return fmt.Errorf("minted what the view does not give")
		case !w.s.confirmed:
			return fmt.Errorf("minted under an unconfirmed view")
		case o.epoch <= w.minted:
			return fmt.Errorf("minted an epoch again")
		}
		w.guard, w.minted, w.desired = o.epoch, o.epoch, o.epoch
	case outFence, outActivate:
		if w.guard != o.epoch {
			return fmt.Errorf("promoted a guard that is not in use")
		}
	case outRevoke:
		if w.guard != o.epoch {
			return fmt.Errorf("revoked a guard that is not in use")
		}
		w.guard = 0
	case outPoison:
		if w.guard != 0 {
			return fmt.Errorf("poisoned before the guard was revoked")
		}
		w.desired, w.dying = 0, w.tree != 0
	case outArmStop:
		w.stop = o.epoch
	case outPropose:
		if w.guard == o.epoch || !w.s.view.ours || w.s.view.epoch != o.epoch {
			return fmt.Errorf("proposed to end an epoch that is not spent")
		}
		w.start(call{o.epoch, o.debt.kind, true})
	case outArmRetry:
		w.retry = o.epoch
	case outExit:
		if w.tree == 0 {
			return fmt.Errorf("exit for a tree that has ended")
		}
		w.exited = true
	}
	return nil
}

// start puts a call under way; the oldest one is lost for good when there is no room.
func (w *world) start(c call) {
	w.calls[1] = w.calls[0]
	w.calls[0] = c
}

// edges lists everything that can happen.
func (x explorer) edges(w world) ([]edge, error) {
	if w.exited {
		return nil, nil
	}
	var all []edge
	var firstErr error
	add := func(kind edgeKind, name string, w world, events ...event) {
		for _, e := range events {
			var err error
			if w, err = x.feed(w, e); err != nil && firstErr == nil {
				firstErr = fmt.Errorf("%s: %w", name, err)
			}
		}
		all = append(all, edge{name, kind, w.canonical()})
	}

	// The committed state moves by other hands.
	fresh := w.committed
	fresh.epoch++
	fresh.ours = true
	add(hostile, "leader assigns the role here", w.with(fresh))
	fresh.ours = false
	add(hostile, "leader assigns the role elsewhere", w.with(fresh))
	vacant := w.committed
	vacant.ours = false
	add(hostile, "leader vacates the role", w.with(vacant))
	if x.recoveries {
		recovered := w.committed
		recovered.generation++
		add(hostile, "the cluster is recovered", w.with(recovered))
	}

	// What this node learns.
	add(fair, "view arrives", w, event{kind: evView, grant: w.committed})
	add(fair, "confirmed", w, event{kind: evConfirmed})
	add(hostile, "unconfirmed", w, event{kind: evUnconfirmed})
	add(hostile, "declines", w, event{kind: evDecline, code: "D", reason: "closing"})

	// The actor system.
	if w.desired != 0 && w.tree == 0 {
		n := w
		n.tree, n.dying = w.desired, false
		add(fair, "tree starts", n, event{kind: evTaken, epoch: w.desired})
	}
	if w.tree != 0 {
		add(fair, "fence raised", w, event{kind: evRaised, epoch: w.tree})
		add(fair, "reconciled", w, event{kind: evActive, epoch: w.tree})
		add(hostile, "FENCED", w, event{kind: evFenced, epoch: w.tree})
		add(hostile, "outcome unknown", w, event{kind: evUnknown, epoch: w.tree})
		add(hostile, "gives up", w, event{kind: evFailed, epoch: w.tree, code: "F", reason: "budget"})
		n := w
		n.tree, n.dying = 0, false
		if w.dying {
			add(fair, "tree ends", n, event{kind: evEnded, epoch: w.tree})
		} else {
			add(hostile, "tree dies", n, event{kind: evEnded, epoch: w.tree})
		}
	}

	// Timers.
	if w.retry != 0 {
		n := w
		n.retry = 0
		add(fair, "retry", n, event{kind: evRetry, epoch: w.retry})
	}
	if w.stop != 0 {
		n := w
		n.stop = 0
		add(hostile, "stop bound", n, event{kind: evOverdue, epoch: w.stop})
	}
	x.callEdges(w, add)
	return all, firstErr
}

// callEdges lists what can become of the proposals under way.
func (x explorer) callEdges(w world, add func(edgeKind, string, world, ...event)) {
	for i, c := range w.calls {
		if c.epoch == 0 {
			continue
		}
		done := w
		done.calls[i] = call{}
		lost := done
		if x.late {
			lost = w
			lost.calls[i].waited = false
		}
		possible := w.committed.ours && w.committed.epoch == c.epoch
		applied := done
		if c.kind == debtBump {
			applied.committed.epoch++
		} else {
			applied.committed.ours = false
		}
		switch {
		case !c.waited:
			add(hostile, "late proposal is lost", done)
			if possible {
				add(hostile, "late proposal is applied", applied)
			}
			continue
		case possible && c.kind == debtBump:
			add(renewing, "bump committed", applied, event{kind: evCommitted, epoch: c.epoch})
			add(unrenewing, "bump refused", done, event{kind: evRefused, epoch: c.epoch})
			add(hostile, "bump committed, answer lost", applied, event{kind: evUncertain, epoch: c.epoch})
		case possible:
			add(fair, "release committed", applied, event{kind: evCommitted, epoch: c.epoch})
			add(hostile, "release committed, answer lost", applied, event{kind: evUncertain, epoch: c.epoch})
		default:
			add(fair, "proposal refused", done, event{kind: evRefused, epoch: c.epoch})
			add(fair, "proposal answered from the replay window", done, event{kind: evCommitted, epoch: c.epoch})
		}
		add(hostile, "proposal fails, perhaps still under way", lost, event{kind: evUncertain, epoch: c.epoch})
	}
}

func (w world) with(committed grant) world {
	w.committed = committed
	return w
}

// settled reports whether the role rests: active here under the committed epoch, or vacant here.
func (w world) settled() bool {
	if !w.committed.ours {
		return w.tree == 0 && w.guard == 0
	}
	return w.guard == w.committed.epoch && w.tree == w.guard && w.s.phase == GuardActive
}

// canonical renames epochs and generations to their ranks: only their order
// matters, so an unbounded history folds into finitely many states.
func (w world) canonical() world {
	epochs := []*fsm.Epoch{
		&w.s.view.epoch, &w.s.tree.epoch, &w.s.floor, &w.s.ask.epoch, &w.committed.epoch, &w.guard,
		&w.minted, &w.desired, &w.tree, &w.calls[0].epoch, &w.calls[1].epoch, &w.retry, &w.stop,
	}
	rank(epochs)
	rank([]*fsm.Generation{&w.s.view.generation, &w.s.tree.generation, &w.committed.generation})
	if w.calls[0].epoch < w.calls[1].epoch {
		w.calls[0], w.calls[1] = w.calls[1], w.calls[0]
	}
	return w
}

func rank[T ~uint64](values []*T) {
	var distinct []T
	for _, v := range values {
		if *v != 0 {
			distinct = append(distinct, *v)
		}
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	for _, v := range values {
		if *v != 0 {
			at, _ := slices.BinarySearch(distinct, *v)
			*v = T(at + 1)
		}
	}
}

// space is the explored state space as a graph.
type space struct {
	worlds []world
	ids    map[world]int
	from   []int    // the state each was first reached from
	by     []string // and how
	back   [][]arc  // reversed edges
}

type arc struct {
	from int
	kind edgeKind
}

func (sp *space) path(id int) string {
	var names []string
	for ; id > 0; id = sp.from[id] {
		names = append(names, sp.by[id])
	}
	slices.Reverse(names)
	return strings.Join(names, " → ")
}

// explore visits every reachable state and fails at the first broken invariant.
func (x explorer) explore() (*space, error) {
	start := world{committed: grant{epoch: 1, generation: 1}}
	sp := &space{worlds: []world{start}, ids: map[world]int{start: 0}, from: []int{0}, by: []string{""}, back: [][]arc{nil}}
	for at := 0; at < len(sp.worlds); at++ {
		edges, err := x.edges(sp.worlds[at])
		if err != nil {
			return sp, fmt.Errorf("%w after %s", err, sp.path(at))
		}
		for _, e := range edges {
			id, known := sp.ids[e.next]
			if !known {
				id = len(sp.worlds)
				sp.ids[e.next] = id
				sp.worlds = append(sp.worlds, e.next)
				sp.from, sp.by, sp.back = append(sp.from, at), append(sp.by, e.name), append(sp.back, nil)
			}
			sp.back[id] = append(sp.back[id], arc{at, e.kind})
		}
	}
	return sp, nil
}

// stuck returns a state from which willing surroundings never bring the role to rest.
func (sp *space) stuck(cooperative ...edgeKind) error {
	reached := make([]bool, len(sp.worlds))
	var queue []int
	for id, w := range sp.worlds {
		if w.settled() || w.exited {
			reached[id] = true
			queue = append(queue, id)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, a := range sp.back[at] {
			if !reached[a.from] && slices.Contains(cooperative, a.kind) {
				reached[a.from] = true
				queue = append(queue, a.from)
			}
		}
	}
	for id, ok := range reached {
		if !ok {
			return fmt.Errorf("no way out of %+v, reached by %s", sp.worlds[id], sp.path(id))
		}
	}
	return nil
}

// check explores the function and returns the number of states and the first fault.
//
// A spent epoch ends in at least one committed command, because no state is
// stuck though the leader never helps; and in at most one, because every
// proposal names the spent epoch and committing it passes that epoch.
func (x explorer) check() (int, error) {
	sp, err := x.explore()
	if err == nil {
		err = sp.stuck(fair, renewing)
	}
	if err == nil {
		err = sp.stuck(fair, unrenewing)
	}
	return len(sp.worlds), err
}

func TestLifecycleExplored(t *testing.T) {
	for name, x := range map[string]explorer{
		"late proposals": {step: step, late: true},
		"recoveries":     {step: step, recoveries: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := x.check()
			require.NoError(t, err)
			t.Logf("explored %d states", n)
			require.Greater(t, n, 20_000, "the environment must be able to reach more")
		})
	}
}
