// Histories made by hand: what each model must take and what it must refuse.

package linear

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

const role = fsm.SchedulerLeader

// on sets when a grant was called and answered.
func on(call, answer int64, g Grant) Grant {
	g.Interval, g.Role, g.Generation = Interval{call, answer}, role, 1
	return g
}

func assign(at, epoch fsm.Epoch, owner string) Grant {
	return Grant{Kind: Assign, Expected: at, Epoch: epoch, Owner: owner}
}

func raise(epoch fsm.Epoch, owner string) Grant {
	return Grant{Kind: Raise, Epoch: epoch, Owner: owner}
}

func observe(epoch fsm.Epoch, owner string) Grant {
	return Grant{Kind: Observe, Epoch: epoch, Owner: owner}
}

func renew(at, epoch fsm.Epoch, owner string) Grant {
	return Grant{Kind: Renew, Expected: at, Epoch: epoch, Owner: owner}
}

func lost(g Grant) Grant {
	g.Outcome, g.Epoch = Unknown, 0
	return g
}

func remove(node string) Grant { return Grant{Kind: Remove, Owner: node} }

func refused(g Grant) Grant {
	g.Outcome = Refused
	return g
}

func TestGrants(t *testing.T) {
	for name, c := range map[string]struct {
		history []Grant
		good    bool
	}{
		"assigned, seen, renewed, released, assigned elsewhere": {[]Grant{
			on(1, 2, assign(0, 3, "a")), on(3, 4, observe(3, "a")), on(5, 6, renew(3, 7, "a")), on(7, 8, Grant{Kind: Release, Epoch: 7, Owner: "a"}),
			on(9, 10, observe(7, "")), on(11, 12, assign(7, 9, "b")), on(13, 14, observe(9, "b"))}, true},
		"rivals at one epoch: one wins": {[]Grant{
			on(1, 9, assign(0, 3, "a")), on(1, 9, refused(assign(0, 4, "b"))), on(10, 11, observe(3, "a"))}, true},
		"a replaced process loses the role": {[]Grant{
			on(1, 2, assign(0, 3, "a")), on(3, 4, Grant{Kind: Vacate, Owner: "b"}), on(5, 6, observe(3, "a")),
			on(7, 8, Grant{Kind: Vacate, Owner: "a"}), on(9, 10, observe(3, ""))}, true},
		"a lost answer that took effect":       {[]Grant{on(1, Open, lost(assign(0, 0, "a"))), on(5, 6, observe(3, "a")), on(7, 8, renew(3, 4, "a"))}, true},
		"a lost answer without effect":         {[]Grant{on(1, Open, lost(assign(0, 0, "a"))), on(5, 6, observe(0, "")), on(7, 8, assign(0, 1, "b"))}, true},
		"a lost answer that takes effect late": {[]Grant{on(1, Open, lost(assign(0, 0, "a"))), on(5, 6, observe(0, "")), on(7, 8, observe(2, "a"))}, true},
		"a read that overlaps the change sees either": {[]Grant{
			on(1, 2, assign(0, 3, "a")), on(3, 9, renew(3, 4, "a")), on(3, 5, observe(4, "a")), on(4, 8, observe(3, "a"))}, true},
		"the fence raised twice by its owner": {[]Grant{on(1, 2, raise(3, "a")), on(3, 4, raise(3, "a")), on(5, 6, observe(3, "a"))}, true},
		"a removed node loses the role": {[]Grant{
			on(1, 2, assign(0, 3, "n/1")), on(3, 4, remove("o")), on(5, 6, observe(3, "n/1")), on(7, 8, remove("n")), on(9, 10, observe(3, "")),
			on(11, 12, refused(assign(3, 4, "n/2"))), on(13, 14, assign(3, 4, "nn/1")), on(15, 16, observe(4, "nn/1"))}, true},
		"a lost removal, done late": {[]Grant{
			on(1, 2, assign(0, 3, "n/1")), on(3, Open, lost(remove("n"))), on(5, 6, renew(3, 4, "n/1")), on(7, 8, observe(4, ""))}, true},
		"a late raise is refused": {[]Grant{on(1, 2, raise(4, "b")), on(3, 4, refused(raise(3, "a"))), on(5, 6, observe(4, "b"))}, true},

		"two owners of one epoch":        {[]Grant{on(1, 9, assign(0, 3, "a")), on(1, 9, assign(0, 3, "b"))}, false},
		"two winners of one epoch":       {[]Grant{on(1, 9, assign(0, 3, "a")), on(1, 9, assign(0, 4, "b"))}, false},
		"an epoch that does not rise":    {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, assign(3, 3, "b"))}, false},
		"a stale read":                   {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, renew(3, 4, "a")), on(5, 6, observe(3, "a"))}, false},
		"a read that goes back":          {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 9, renew(3, 4, "a")), on(3, 5, observe(4, "a")), on(6, 8, observe(3, "a"))}, false},
		"a read of what nobody wrote":    {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, observe(3, "b"))}, false},
		"renewed by somebody else":       {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, renew(3, 4, "b"))}, false},
		"released by somebody else":      {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, Grant{Kind: Release, Epoch: 3, Owner: "b"})}, false},
		"owned after the release":        {[]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, Grant{Kind: Release, Epoch: 3, Owner: "a"}), on(5, 6, observe(3, "a"))}, false},
		"owned after its node's removal": {[]Grant{on(1, 2, assign(0, 3, "n/1")), on(3, 4, remove("n")), on(5, 6, observe(3, "n/1"))}, false},
		"granted to a removed node":      {[]Grant{on(1, 2, remove("n")), on(3, 4, assign(0, 3, "n/2"))}, false},
		"granted after a removal that was lost": {[]Grant{
			on(1, 2, assign(0, 3, "n/1")), on(3, Open, lost(remove("n"))), on(5, 6, observe(3, "")), on(7, 8, assign(3, 4, "n/2"))}, false},
		"a stale raise is obeyed":              {[]Grant{on(1, 2, raise(4, "b")), on(3, 4, raise(3, "a"))}, false},
		"an epoch raised by two":               {[]Grant{on(1, 2, raise(3, "a")), on(3, 4, raise(3, "b"))}, false},
		"a raise in order is refused":          {[]Grant{on(1, 2, raise(3, "a")), on(3, 4, refused(raise(4, "b")))}, false},
		"a write under a fence that is gone":   {[]Grant{on(1, 2, raise(3, "a")), on(3, 4, raise(4, "b")), on(5, 6, observe(3, "a"))}, false},
		"a lost answer that took effect twice": {[]Grant{on(1, Open, lost(assign(0, 0, "a"))), on(5, 6, observe(3, "a")), on(7, 8, assign(3, 4, "b")), on(9, 10, observe(5, "a"))}, false},
		"nothing":                              {nil, false},
	} {
		t.Run(name, func(t *testing.T) { judge(t, Grants(c.history), c.good) })
	}
}

// TestRemovalIsOfTheWholeNode: a recorded removal names the node as its processes do.
func TestRemovalIsOfTheWholeNode(t *testing.T) {
	n := cluster.NewNodeID()
	ops := operations(fsm.RemoveMember{Node: n}, 1)
	require.Len(t, ops, len(fsm.Roles()))
	for i, op := range ops {
		require.Equal(t, Remove, op.Kind)
		require.Equal(t, fsm.Roles()[i], op.Role)
		after, _ := held{epoch: 3, owner: Process(n, cluster.NewIncarnationID())}.after(op)
		require.Empty(t, after.owner)
		require.True(t, after.gone(Process(n, cluster.NewIncarnationID())))
		require.False(t, after.gone(Process(cluster.NewNodeID(), cluster.NewIncarnationID())))
	}
}

func judge(t *testing.T, err error, good bool) {
	t.Helper()
	if good {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
	t.Log(err)
}

func TestRefusalNamesWhatDoesNotFit(t *testing.T) {
	err := Grants([]Grant{on(1, 2, assign(0, 3, "a")), on(3, 4, observe(9, "b"))})
	require.ErrorContains(t, err, `1 of 2 operations fit, the last is assign SchedulerLeader at 0: epoch 3`)
	require.ErrorContains(t, err, `observe SchedulerLeader: epoch 9 of generation 1, owner "b", done [3, 4]`)
	require.ErrorContains(t, Grants([]Grant{on(4, 3, observe(0, ""))}), "before it was called")
}

// Roles are registers of their own: what contradicts in one does not in two.
func TestRolesAreApart(t *testing.T) {
	other := on(3, 4, assign(0, 4, "b"))
	require.Error(t, Grants([]Grant{on(1, 2, assign(0, 3, "a")), other}))
	other.Role = fsm.ReleaseCoordinator
	require.NoError(t, Grants([]Grant{on(1, 2, assign(0, 3, "a")), other}))
}

func lease(call, answer int64, k LeaseKind, attempt int, holder string, o Outcome) Lease {
	return Lease{Interval: Interval{call, answer}, Kind: k, Job: "j", Holder: holder, Attempt: attempt, Outcome: o}
}

func TestLeases(t *testing.T) {
	for name, c := range map[string]struct {
		history []Lease
		good    bool
	}{
		"taken and completed":          {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Complete, 1, "a", Done)}, true},
		"the completion repeated":      {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Complete, 1, "a", Done), lease(5, 6, Complete, 1, "a", Done)}, true},
		"expired, then taken anew":     {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Expire, 1, "", Done), lease(5, 6, Take, 2, "b", Done), lease(7, 8, Complete, 1, "a", Refused)}, true},
		"lost completion, taken anew":  {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, Open, Complete, 1, "a", Unknown), lease(9, 10, Take, 2, "b", Done)}, true},
		"lost completion, expired":     {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, Open, Complete, 1, "a", Unknown), lease(5, 6, Expire, 1, "", Done)}, true},
		"two active":                   {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Take, 2, "b", Done)}, false},
		"the same attempt twice":       {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Expire, 1, "", Done), lease(5, 6, Take, 1, "b", Done)}, false},
		"completed by another":         {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Complete, 1, "b", Done)}, false},
		"completed after its expiry":   {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Expire, 1, "", Done), lease(5, 6, Complete, 1, "a", Done)}, false},
		"refused though it was held":   {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Complete, 1, "a", Refused)}, false},
		"completed before it was held": {[]Lease{lease(1, 2, Complete, 1, "a", Done), lease(3, 4, Take, 1, "a", Done)}, false},
		"expired after its completion": {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(3, 4, Complete, 1, "a", Done), lease(5, 6, Expire, 1, "", Done)}, false},
		"taken while it is completed":  {[]Lease{lease(1, 2, Take, 1, "a", Done), lease(5, 8, Complete, 1, "a", Done), lease(3, 4, Take, 2, "b", Done)}, false},
		"nothing":                      {nil, false},
	} {
		t.Run(name, func(t *testing.T) { judge(t, Leases(c.history), c.good) })
	}
}

func TestRaisesOfTraces(t *testing.T) {
	of := func(mono int64, k trace.Kind, epoch fsm.Epoch, process byte) trace.Event {
		return trace.Event{Mono: mono, Kind: k, Role: role, Epoch: epoch, Node: fsm.NodeID{process}, Incarnation: fsm.IncarnationID{process}}
	}
	one := []trace.Event{of(1, trace.Grant, 3, 1), of(2, trace.Fenced, 3, 1), of(3, trace.Active, 3, 1), of(20, trace.Inactive, 3, 1)}
	two := []trace.Event{of(5, trace.Grant, 4, 2), of(9, trace.Fenced, 4, 2)}
	require.NoError(t, Grants(Raises(append(one, two...))))
	require.NoError(t, Grants(Raises(append(two, one...))), "processes may come in any order")

	// The first owner raised its fence only after the second had.
	late := []trace.Event{of(10, trace.Grant, 3, 1), of(11, trace.Fenced, 3, 1)}
	require.Error(t, Grants(Raises(append(late, two...))))
	require.NoError(t, Grants(Raises(append(late[:1], two...))), "it tried, and was refused")
}

func TestLeasesOfJournals(t *testing.T) {
	of := func(mono int64, k runner.EntryKind, lease string, attempt int) runner.Entry {
		return runner.Entry{What: k, Lease: lease, Job: "j", Attempt: attempt, Mono: mono}
	}
	whole := func(at int64, lease string, attempt int) []runner.Entry {
		return []runner.Entry{of(at, runner.EntryDispatch, lease, attempt), of(at+1, runner.EntryStart, lease, attempt),
			of(at+5, runner.EntryFinish, lease, attempt), of(at+6, runner.EntryClose, lease, attempt)}
	}
	done := func(leases ...string) func(string) bool {
		return func(l string) bool {
			for _, other := range leases {
				if l == other {
					return true
				}
			}
			return false
		}
	}
	require.NoError(t, Leases(Journals(map[string][]runner.Entry{"a": whole(1, "l1", 1), "b": whole(10, "l2", 2)}, done("l1", "l2"))))
	require.NoError(t, Leases(Journals(map[string][]runner.Entry{"a": whole(1, "l1", 1)[:2], "b": whole(10, "l2", 2)}, done("l2"))), "the agent died")
	require.Error(t, Leases(Journals(map[string][]runner.Entry{"a": whole(1, "l1", 1), "b": whole(3, "l2", 2)}, done("l1", "l2"))), "both ran at a time")
	require.Error(t, Leases(Journals(map[string][]runner.Entry{"a": whole(1, "l1", 1), "b": whole(20, "l2", 1)}, done("l1", "l2"))), "one attempt, two leases")
}
