// Watcher and supervisor as one machine under rapid: messages that are doubled, lost, merged and late; views that go back.

package actors

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// office plays the Service for one role: what should run, and what was reported.
type office struct {
	desired fsm.Epoch
	owed    map[fsm.Epoch]bool // told of, and the end not reported yet
	ended   map[fsm.Epoch]int
	failed  map[fsm.Epoch]bool

	answers []fsm.Epoch // given so far
	late    []fsm.Epoch // answers given before that arrive only now, in place of the next ones
	changes int         // of what is desired since the last answer
	seen    views
}

// views counts what happened to the views on their way, so that a run can tell that it did.
type views struct {
	back    int // an answer older than one that had arrived
	lower   int // of these, one with an epoch below another that had been wanted
	merged  int // several changes behind one answer
	doubled int // the watcher had the same answer twice
}

func (o *office) Desired(role fsm.Role) cluster.Tree {
	if len(o.late) > 0 {
		old := o.late[0]
		o.late = o.late[1:]
		if old != o.answers[len(o.answers)-1] {
			o.seen.back++
			if old != 0 && old < slices.Max(o.answers) {
				o.seen.lower++
			}
		}
		return cluster.Tree{Role: role, Epoch: old}
	}
	if o.changes > 1 {
		o.seen.merged++
	}
	o.changes = 0
	o.answers = append(o.answers, o.desired)
	if o.desired != 0 && o.ended[o.desired] == 0 {
		o.owed[o.desired] = true
	}
	return cluster.Tree{Role: role, Epoch: o.desired}
}

// want changes what should run.
func (o *office) want(e fsm.Epoch) {
	if e != o.desired {
		o.desired = e
		o.changes++
	}
}

func (o *office) Report(_ fsm.Role, epoch fsm.Epoch, ev cluster.TreeEvent, _, _ string) {
	switch ev {
	case cluster.TreeEnded:
		delete(o.owed, epoch)
		o.ended[epoch]++
		if o.desired == epoch {
			o.want(0) // its epoch is spent
		}
	case cluster.TreeFailed:
		o.failed[epoch] = true
	}
}

func (o *office) Changes() (<-chan struct{}, func()) { return nil, func() {} }

func (o *office) AcquireRole(context.Context, fsm.Role) (cluster.RoleGuard, error) {
	return cluster.RoleGuard{}, cluster.ErrNotOwner
}

func (o *office) CurrentView(context.Context) (cluster.View, error) { return cluster.View{}, nil }

// desk is the watcher, the supervisor's mailbox and the one seat, with the steps
// of the actors taken one by one.
type desk struct {
	office  *office
	seat    *seat
	told    told
	mailbox []any // what the watcher sent, and the ends of trees
	running []*tree
	started map[fsm.Epoch]int
	stops   map[fsm.Epoch]int // poison steps
}

// look is the watcher's tick.
func (d *desk) look() {
	next, messages := d.told.next(d.seat.wanted(d.office))
	d.told = next
	d.mailbox = append(d.mailbox, messages...)
}

// converge is what the supervisor does at any message.
func (d *desk) converge(t *rapid.T) {
	want := d.seat.wanted(d.office)
	switch step, old := d.seat.decide(want); step {
	case stepPoison:
		d.stops[old.epoch]++
	case stepSpawn:
		grown := d.seat.take(func() *tree { return &tree{seat: d.seat, epoch: want, over: make(chan struct{})} })
		require.NotNil(t, grown, "the seat was free a moment ago")
		d.started[want]++
		d.running = append(d.running, grown)
	}
}

// end is the end of the tree and all its loops.
func (d *desk) end() {
	old := d.running[0]
	d.running = nil
	d.seat.free(old)
	d.office.Report(d.seat.spec.Role, old.epoch, cluster.TreeEnded, "", "")
	d.mailbox = append(d.mailbox, &treeEnded{old.epoch})
}

// TestWatcherAndSupervisor: whatever becomes of the messages between them, a role
// has one tree at a time, an epoch has one tree at most, a tree is told to end
// once, every epoch the Service has told of is reported ended once, and in the end
// the tree that is wanted runs.
func TestWatcherAndSupervisor(t *testing.T) {
	spawned, poisoned, passed := 0, 0, 0
	var seen views
	rapid.Check(t, func(t *rapid.T) {
		d := &desk{
			office: &office{owed: map[fsm.Epoch]bool{}, ended: map[fsm.Epoch]int{}, failed: map[fsm.Epoch]bool{}},
			seat:   newSeat(RoleSpec{Role: fsm.SchedulerLeader}), started: map[fsm.Epoch]int{}, stops: map[fsm.Epoch]int{},
		}
		var epoch fsm.Epoch
		pick := func(t *rapid.T, do func(i int)) { // nothing of an empty mailbox
			if len(d.mailbox) > 0 {
				do(rapid.IntRange(0, len(d.mailbox)-1).Draw(t, "message"))
			}
		}
		drop := func(i int) { d.mailbox = append(d.mailbox[:i:i], d.mailbox[i+1:]...) }
		wants := func(e fsm.Epoch) {
			// The Service mints the next tree only after the end of the one before.
			if e != 0 && len(d.office.owed) > 0 {
				return
			}
			d.office.want(e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"a new epoch is wanted": func(*rapid.T) { epoch += fsm.Epoch(rapid.IntRange(1, 3).Draw(t, "gap")); wants(epoch) },
			"nothing is wanted":     func(*rapid.T) { wants(0) },
			"the watcher looks":     func(*rapid.T) { d.look() },
			"a view goes back": func(t *rapid.T) { // answers that others overtook arrive now, each once or twice
				if len(d.office.answers) > 0 {
					old := rapid.SampledFrom(d.office.answers).Draw(t, "older")
					d.office.late = slices.Repeat([]fsm.Epoch{old}, rapid.IntRange(1, 2).Draw(t, "times"))
				}
			},
			"views are merged": func(*rapid.T) {
				wants(0)
				epoch++
				wants(epoch)
				wants(0)
				epoch++
				wants(epoch)
			},
			"a view comes twice": func(t *rapid.T) {
				d.office.late = nil
				d.look()
				at := len(d.mailbox)
				d.look()
				require.Len(t, d.mailbox, at, "the same view asked for something again")
				d.office.seen.doubled++
			},
			"the watcher is renewed": func(*rapid.T) { d.told = told{}; d.look() },
			"a message comes":        func(t *rapid.T) { pick(t, func(i int) { drop(i); d.converge(t) }) }, // in any order
			"a message comes twice":  func(t *rapid.T) { pick(t, func(int) { d.converge(t) }) },
			"a message is lost":      func(t *rapid.T) { pick(t, drop) },
			"the supervisor is renewed": func(t *rapid.T) {
				d.converge(t) // Started
			},
			"the tree ends": func(t *rapid.T) {
				if len(d.running) == 0 {
					return
				}
				d.end()
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(d.running), 1)
				for e, n := range d.started {
					require.Equal(t, 1, n, "epoch %d was started again", e)
				}
				for e, n := range d.stops {
					require.Equal(t, 1, n, "epoch %d was told to end twice", e)
				}
				for e, n := range d.office.ended {
					require.Equal(t, 1, n, "the end of epoch %d was reported again", e)
				}
			},
		})
		// The next ticks find everything out, though every message so far is lost.
		d.mailbox, d.office.late = nil, nil
		for range 4 {
			d.told = told{}
			d.look()
			d.converge(t)
			if len(d.running) > 0 && (d.running[0].epoch != d.office.desired || d.stops[d.running[0].epoch] > 0) {
				d.end() // what was told to end does, though it was by an older view
			}
		}
		if d.office.desired == 0 {
			require.Empty(t, d.running)
			require.Empty(t, d.office.owed)
		} else {
			require.Len(t, d.running, 1)
			require.Equal(t, d.office.desired, d.running[0].epoch)
		}
		// And when the node stops, nothing new begins and nothing stays owed.
		old, late := d.seat.close()
		if late != 0 {
			d.seat.decline(d.office, late)
		}
		require.Equal(t, len(d.running) == 1, old != nil)
		if old != nil {
			d.end()
		}
		wants(epoch + 1)
		d.look()
		d.converge(t)
		require.Empty(t, d.running)
		require.Empty(t, d.office.owed)
		spawned, poisoned = spawned+len(d.started), poisoned+len(d.stops)
		passed += len(d.office.ended) - len(d.started)
		o := d.office.seen
		seen = views{seen.back + o.back, seen.lower + o.lower, seen.merged + o.merged, seen.doubled + o.doubled}
	})
	t.Logf("%d trees, %d told to end, %d epochs passed without a tree; views: %+v", spawned, poisoned, passed, seen)
	require.Positive(t, min(spawned, poisoned, passed, seen.back, seen.lower, seen.merged, seen.doubled))
}
