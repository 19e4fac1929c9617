// Package order says which order the trace of a process must have, whatever
// happened to it. Stamps are compared exactly, so it is for virtual time.
package order

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// Require checks the whole trace of one process that has stopped: epochs rise,
// loops of two epochs never overlap, and every epoch ended in the right order.
func Require(t testing.TB, events []trace.Event) {
	t.Helper()
	for _, role := range fsm.Roles() {
		last, open := fsm.Epoch(0), map[fsm.Epoch]int{}
		granted := []fsm.Epoch{}
		for _, e := range events {
			if e.Role != role {
				continue
			}
			switch e.Kind {
			case trace.Grant:
				require.Greater(t, e.Epoch, last, "%s: epochs rise", role)
				last = e.Epoch
				granted = append(granted, e.Epoch)
				require.Empty(t, open, "%s: epoch %d was granted while loops ran", role, e.Epoch)
			case trace.LoopStart:
				open[e.Epoch]++
				require.Len(t, open, 1, "%s: epoch %d started a loop while another epoch's ran", role, e.Epoch)
				require.Equal(t, last, e.Epoch, "%s: a loop of an old epoch", role)
			case trace.LoopEnd:
				if open[e.Epoch]--; open[e.Epoch] == 0 {
					delete(open, e.Epoch)
				}
			case trace.Terminated:
				require.Empty(t, open, "%s: epoch %d terminated before its loops", role, e.Epoch)
			}
		}
		require.Empty(t, open, "%s: loops without an end", role)
		for _, epoch := range granted {
			Revocation(t, trace.Select(events, role, epoch))
		}
	}
}

// Revocation checks the end of one epoch and returns its cause: inactive,
// cancel, invalidate, each once, after everything that needs a guard and before
// anything that ends the tree (§294).
func Revocation(t testing.TB, events []trace.Event) (cause string) {
	t.Helper()
	var steps []trace.Kind
	var at []int64
	var began, ended int64
	bySeat := map[trace.Kind]int{}
	for _, e := range events {
		switch e.Kind {
		case trace.Inactive, trace.Cancel, trace.Invalidate:
			steps, at = append(steps, e.Kind), append(at, e.Mono)
			require.Contains(t, []string{"", e.Detail}, cause)
			cause = e.Detail
		case trace.Grant, trace.Fenced, trace.Active:
			require.Empty(t, steps, "%s after the revocation: %v", e.Kind, trace.Kinds(events))
		case trace.LoopStart:
			began = max(began, e.Mono)
		case trace.Poison, trace.Terminated:
			if ended == 0 {
				ended = e.Mono
			}
		case trace.Spent, trace.Bump, trace.Release:
			require.Len(t, steps, 3, "%s before the revocation: %v", e.Kind, trace.Kinds(events))
			bySeat[e.Kind]++
		}
	}
	require.Equal(t, []trace.Kind{trace.Inactive, trace.Cancel, trace.Invalidate}, steps, "%v", trace.Kinds(events))
	require.IsNonDecreasing(t, at)
	if began != 0 {
		require.LessOrEqual(t, began, at[0], "a loop started after the guard was inactive")
	}
	if ended != 0 {
		require.LessOrEqual(t, at[2], ended, "the tree ended before the guard was invalid: %v", trace.Kinds(events))
	}
	require.LessOrEqual(t, bySeat[trace.Bump]+bySeat[trace.Release], bySeat[trace.Spent], "a command without a spent epoch, or two for one")
	return cause
}
