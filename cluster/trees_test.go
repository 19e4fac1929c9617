// Trees that end late, never or by themselves, against the Service in virtual time.

package cluster_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// TestLateTreeDelaysTheNextEpoch: the successor starts only after Terminated and the last loop's end.
func TestLateTreeDelaysTheNextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		r.trees.stick()
		next := r.assign(scheduler)
		r.eventually(func() bool { return g.State() == cluster.GuardRevoked })
		<-time.After(8 * time.Second)
		require.Zero(t, r.service.Desired(scheduler).Epoch)
		require.Empty(t, r.exited())
		r.trees.release()
		r.eventually(func() bool {
			return r.stands(scheduler).Epoch == next && r.stands(scheduler).State == cluster.GuardActive
		})
		all := r.rec.Events()
		ended := slices.IndexFunc(all, func(e trace.Event) bool { return e.Kind == trace.Terminated && e.Epoch == g.Epoch() })
		granted := slices.IndexFunc(all, func(e trace.Event) bool { return e.Kind == trace.Grant && e.Epoch == next })
		require.Less(t, ended, granted)
		<-time.After(time.Minute)
		require.Empty(t, r.exited(), "the stop bound is over with the tree")
		require.Empty(t, r.engine.committed())
		r.finish()
	})
}

// TestHungTreeEndsTheProcess: past the stop bound there is an alarm and one exit.
func TestHungTreeEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		r.trees.stick()
		start := time.Now()
		g.Lost(unknown)
		r.within(11*time.Second, func() bool { return len(r.exited()) > 0 })
		require.InDelta(t, 10, time.Since(start).Seconds(), 0.2)
		require.Contains(t, r.exited()[0], "SchedulerLeader")
		<-time.After(time.Minute)
		require.Len(t, r.exited(), 1)
		require.Equal(t, 1, count(trace.Kinds(r.rec.Of(scheduler, g.Epoch())), trace.Exit))
		require.Zero(t, r.service.Desired(scheduler).Epoch, "the renewed epoch does not start beside it")
		r.finish()
	})
}

// TestTreeThatDiesIsRenewed: a tree that ends by itself spends its epoch.
func TestTreeThatDiesIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		g := r.active(scheduler)
		r.service.Report(scheduler, g.Epoch(), cluster.TreeEnded, "", "")
		require.Equal(t, cluster.GuardRevoked, g.State())
		require.ErrorIs(t, context.Cause(g.Context()), cluster.ErrTreeDied)
		r.eventually(func() bool { return r.stands(scheduler).Epoch == g.Epoch()+1 })
		require.Len(t, r.engine.committed(), 1)
		r.finish()
	})
}

// TestTreeThatNobodyHeardOf needs no report of its end.
func TestTreeThatNobodyHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.trees.stop() // nobody asks for Desired
		e := r.assign(scheduler)
		r.eventually(func() bool { return r.stands(scheduler).State == cluster.GuardGranted })
		next := r.assign(scheduler)
		r.eventually(func() bool { return r.stands(scheduler).Epoch == next })
		require.Equal(t, []trace.Kind{trace.Grant, trace.Inactive, trace.Cancel, trace.Invalidate}, trace.Kinds(r.rec.Of(scheduler, e)))
		<-time.After(time.Minute)
		require.Empty(t, r.exited())
		require.NoError(t, r.service.Close(t.Context()))
		require.NoError(t, r.engine.Close())
	})
}

// TestFlappingNeverDoublesATree: fast loss and gain, with trees that end late (§283).
func TestFlappingNeverDoublesATree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var last fsm.Epoch
		for i := range 50 {
			if i%3 == 0 {
				r.trees.stick()
			}
			last = r.assign(scheduler)
			<-time.After(time.Duration(i%7) * time.Millisecond)
			if i%3 == 2 {
				r.trees.release()
			}
			if g, err := r.service.AcquireRole(t.Context(), scheduler); err == nil && i%5 == 0 {
				g.Lost(unknown)
				r.eventually(func() bool { return r.engine.Backend.View().Role(scheduler).Epoch > g.Epoch() })
			}
		}
		r.trees.release()
		r.eventually(func() bool { return r.stands(scheduler).State == cluster.GuardActive })
		require.GreaterOrEqual(t, r.stands(scheduler).Epoch, last)
		require.False(t, r.trees.doubled.Load())
		r.finish()
	})
}
