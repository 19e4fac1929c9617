// Package mutants proves that the tests find what they are there for: it plants one fault at a time and runs the test that must catch it.
//
// Each package's tests are compiled once, with the build tag "mutants"; the
// environment chooses the fault. migrations/mutant has the sites' side of it.
package mutants

import "github.com/forgeyard/forgeyard/migrations/mutant"

// Case is a fault and the test that must catch it.
type Case struct {
	Mutant mutant.Name
	Breaks string // what the fault takes away
	Test   Test
}

// Test is one test of a package.
type Test struct {
	Package string // from the root of the module, such as "roles/store"
	Run     string // what -test.run selects
}

// Catalog has one case for each fault.
func Catalog() []Case {
	return []Case{
		{
			mutant.PlainReadFence, "the fence row is read without a lock: a takeover does not wait for the writers before it",
			Test{"roles/store", "^TestFenceInterleavings$"},
		},
		{
			mutant.KeyShareFence, "FOR KEY SHARE does not hold up the takeover's update of the fence row",
			Test{"roles/store", "^TestFenceInterleavings$"},
		},
		{
			mutant.FenceInsideStatement, "the snapshot is older than the lock: a write that waited for a takeover sees the fence before it",
			Test{"roles/store", "^TestWriteThatWaitsForATakeover$"},
		},
		{
			mutant.AckBeforeCommit, "a batch whose commit fails is acknowledged",
			Test{"roles/store", "^TestAckOnlyAfterCommit$"},
		},
		{
			mutant.NoBarrier, "a leader decides by a state that lacks committed entries",
			Test{"cluster/raftnode", "^TestBarrierBeforeLeadership$"},
		},
		{
			mutant.GuardOutlivesLease, "an owner that is cut off goes on",
			Test{"cluster", "^TestStopOrderForEveryCause$/^link_cut_for_a_second$"},
		},
		{
			mutant.LoopNotJoined, "loops of two epochs of a role run at a time",
			Test{"actors", "^TestLoopIgnoresContext$"},
		},
		{
			mutant.AgentIgnoresEpochs, "an agent starts what an overtaken scheduler ordered",
			Test{"roles/runner", "^TestFencingClockHighWaterMark$"},
		},
		{
			mutant.HeaderUnchecked, "a node votes and appends in the name of another",
			Test{"transport/rafttransport", "^TestSenderImpersonation$/^vote_id$"},
		},
		{
			mutant.CursorBySeq, "an event of a transaction that commits late is never read",
			Test{"roles/events", "^TestLateCommitIsNotMissed$"},
		},
	}
}

// Quick is the part of the catalog that every change must pass: each needs the
// tests of a small package, and no server.
func Quick() []Case {
	var quick []Case
	for _, c := range Catalog() {
		switch c.Mutant {
		case mutant.GuardOutlivesLease, mutant.LoopNotJoined, mutant.HeaderUnchecked:
			quick = append(quick, c)
		}
	}
	return quick
}
