// Reading the daemons' traces: waiting for a step, and the order that every revocation must keep.

package scenario

import (
	"cmp"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

// traceOf is a daemon's trace of the role, in file order, all its incarnations.
func traceOf(t testing.TB, n *fleet.Node) []trace.Event {
	t.Helper()
	events, err := trace.Read(n.TraceFile())
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return slices.DeleteFunc(events, func(e trace.Event) bool { return e.Role != role && e.Kind != trace.Exit })
}

// step waits for a daemon's step of an epoch and returns it.
func step(t testing.TB, n *fleet.Node, epoch fsm.Epoch, kind trace.Kind) trace.Event {
	t.Helper()
	ctx := bounded(t)
	for {
		for _, e := range traceOf(t, n) {
			if e.Epoch == epoch && e.Kind == kind {
				return e
			}
		}
		select {
		case <-ctx.Done():
			require.Failf(t, "no such step", "%s never traced %s of epoch %d: %v", n.Name, kind, epoch, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// steps counts a daemon's steps of an epoch.
func steps(t testing.TB, n *fleet.Node, epoch fsm.Epoch, kinds ...trace.Kind) (count int) {
	t.Helper()
	for _, e := range traceOf(t, n) {
		if e.Epoch == epoch && slices.Contains(kinds, e.Kind) {
			count++
		}
	}
	return count
}

// moves counts the grants between two instants that went to another daemon than
// the grant before; all daemons' grants count.
func (w *World) moves(t testing.TB, from, to int64) (moves, grants int) {
	t.Helper()
	var all []trace.Event
	for _, n := range w.Nodes() {
		for _, e := range traceOf(t, n) {
			if e.Kind == trace.Grant {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b trace.Event) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for i, e := range all {
		if e.Mono < from || e.Mono > to {
			continue
		}
		grants++
		if i > 0 && all[i-1].Node != e.Node {
			moves++
		}
	}
	return moves, grants
}

// checkOrder requires of every epoch in every trace that one process had it, that
// it ended inactive → cancel → invalidate, that its loops ended before its tree
// did, and that the next epoch in the same process began after that.
func (w *World) checkOrder(t testing.TB) {
	t.Helper()
	had := map[fsm.Epoch]fsm.IncarnationID{}
	for _, n := range w.Nodes() {
		lives := map[fsm.IncarnationID][]trace.Event{}
		for _, e := range traceOf(t, n) {
			lives[e.Incarnation] = append(lives[e.Incarnation], e)
			if e.Kind != trace.Grant {
				continue
			}
			other, taken := had[e.Epoch]
			require.False(t, taken && other != e.Incarnation, "epoch %d was granted to two processes", e.Epoch)
			had[e.Epoch] = e.Incarnation
		}
		for _, life := range lives {
			checkLife(t, n.Name, life)
		}
	}
	require.NotEmpty(t, had, "the traces hold no grant: they prove nothing")
}

// checkLife follows one process.
func checkLife(t testing.TB, name string, life []trace.Event) {
	t.Helper()
	first := func(epoch fsm.Epoch, kind trace.Kind) int {
		return slices.IndexFunc(life, func(e trace.Event) bool { return e.Epoch == epoch && e.Kind == kind })
	}
	loops := map[fsm.Epoch]int{} // loops that run
	var before fsm.Epoch
	for at, e := range life {
		switch e.Kind {
		case trace.LoopStart:
			loops[e.Epoch]++
		case trace.LoopEnd:
			loops[e.Epoch]--
		case trace.Grant:
			require.Greater(t, e.Epoch, before, "%s was granted an old epoch", name)
			require.Zero(t, loops[before], "%s began epoch %d while loops of epoch %d ran", name, e.Epoch, before)
			if poisoned := first(before, trace.Poison); before != 0 && poisoned >= 0 {
				ended := first(before, trace.Terminated)
				require.True(t, ended >= 0 && ended < at, "%s began epoch %d before the tree of epoch %d had ended", name, e.Epoch, before)
			}
			before = e.Epoch
		case trace.Invalidate:
			inactive, cancel := first(e.Epoch, trace.Inactive), first(e.Epoch, trace.Cancel)
			require.True(t, 0 <= inactive && inactive < cancel && cancel < at, "%s revoked epoch %d out of order", name, e.Epoch)
			require.True(t, life[inactive].Mono <= life[cancel].Mono && life[cancel].Mono <= e.Mono, "%s revoked epoch %d out of time", name, e.Epoch)
		}
	}
}
