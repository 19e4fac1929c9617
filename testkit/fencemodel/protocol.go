// Package fencemodel is a model of the fence protocol that is small enough to
// be explored exhaustively: owners of one role who all believe in their epoch,
// the sessions of PostgreSQL that work for them, one fence row, and an agent that
// carries out what they order.
//
// It knows nothing of guards and views: what it proves, it proves for owners
// that were paused for any time between any two steps. The order of steps here is
// that of coordination.fence and coordination.raise_fence; roles/store tests the
// same orders on a real server.
package fencemodel

// Op is one step of a transaction. Two sessions interleave between any two of them.
type Op uint8

// The steps.
const (
	// Snap takes a new snapshot: what a statement in READ COMMITTED begins with.
	Snap Op = iota
	// Latest reads the newest committed version of the fence row, as a row lock does after its wait.
	Latest
	// Check reads the fence row of the snapshot; the transaction ends FENCED unless it is at this owner's epoch.
	Check
	// CheckUp is raise_fence's question: a row above ends the transaction FENCED, a
	// row at this epoch ends it well without a change.
	CheckUp
	// LockShared and LockExclusive wait for the role's advisory lock. Whoever waits
	// for the exclusive one may end the sessions that hold the shared one.
	LockShared
	LockExclusive
	// RowKeyShare, RowShare and RowUpdate wait for a lock of the fence row, of the
	// modes FOR KEY SHARE, FOR SHARE and FOR NO KEY UPDATE.
	RowKeyShare
	RowShare
	RowUpdate
	// PutFence writes this owner's epoch into the fence row, Write a leader-owned row;
	// others see either once it is committed.
	PutFence
	Write
	// Commit makes the transaction's writes visible; its locks are still held.
	Commit
	// Release frees the transaction's locks.
	Release
	// Tell is when the owner takes the mutation for done: it dispatches, acknowledges and wakes others.
	Tell
)

var opNames = [...]string{
	"takes a snapshot", "reads the newest fence row", "checks the fence", "checks that it may raise",
	"locks shared", "locks exclusively", "locks the row FOR KEY SHARE", "locks the row FOR SHARE", "locks the row for its update",
	"writes the fence row", "writes", "commits", "releases its locks", "is told that it is done",
}

func (o Op) String() string { return opNames[o] }

// silent steps touch nothing that another session could see or change, so they
// are taken together with the step before them.
func (o Op) silent() bool {
	return o == Check || o == CheckUp || o == PutFence || o == Write
}

// Protocol is what an owner's sessions do: how a new owner raises the fence, and
// how it mutates under it.
type Protocol struct {
	Name   string
	Raise  []Op
	Mutate []Op
	Agent  []AgentOp
}

// Right is the protocol of the product.
func Right() Protocol {
	return Protocol{
		Name:   "shared lock, then the fence in a statement of its own",
		Raise:  []Op{Snap, CheckUp, LockExclusive, Snap, CheckUp, PutFence, Commit, Release},
		Mutate: []Op{LockShared, Snap, Check, Snap, Write, Commit, Release, Tell},
		Agent:  RightAgent(),
	}
}

// ForShare is also safe. The product does not use it because writers starve the takeover.
func ForShare() Protocol {
	return Protocol{
		Name:   "row lock FOR SHARE",
		Raise:  []Op{Snap, CheckUp, RowUpdate, Latest, CheckUp, PutFence, Commit, Release},
		Mutate: []Op{Snap, RowShare, Latest, Check, Snap, Write, Commit, Release, Tell},
		Agent:  RightAgent(),
	}
}

// Wrong are the protocols that look right, each with one fault.
func Wrong() []Protocol {
	with := func(name string, raise, mutate []Op) Protocol {
		p := Right()
		p.Name = name
		if raise != nil {
			p.Raise = raise
		}
		if mutate != nil {
			p.Mutate = mutate
		}
		return p
	}
	return []Protocol{
		with("plain read of the fence", nil,
			[]Op{Snap, Check, Snap, Write, Commit, Release, Tell}),
		with("row lock FOR KEY SHARE",
			[]Op{Snap, CheckUp, RowUpdate, Latest, CheckUp, PutFence, Commit, Release},
			[]Op{Snap, RowKeyShare, Latest, Check, Snap, Write, Commit, Release, Tell}),
		with("the fence in a subselect of the mutation", nil,
			[]Op{Snap, Check, Write, Commit, Release, Tell}),
		with("the lock inside the mutation's statement", nil,
			[]Op{Snap, LockShared, Check, Write, Commit, Release, Tell}),
		with("REPEATABLE READ: one snapshot, older than the wait for the lock", nil,
			[]Op{Snap, LockShared, Check, Write, Commit, Release, Tell}),
		with("the fence in a transaction before the mutation's", nil,
			[]Op{LockShared, Snap, Check, Commit, Release, Snap, Write, Commit, Release, Tell}),
		with("the lock released before the commit", nil,
			[]Op{LockShared, Snap, Check, Release, Snap, Write, Commit, Release, Tell}),
		with("a raise without the lock",
			[]Op{Snap, CheckUp, RowUpdate, Latest, CheckUp, PutFence, Commit, Release}, nil),
		with("a raise that does not look again after its wait",
			[]Op{Snap, CheckUp, LockExclusive, PutFence, Commit, Release}, nil),
		with("told before the commit has succeeded", nil,
			[]Op{LockShared, Snap, Check, Snap, Write, Tell, Commit, Release}),
	}
}
