// The errors of exclusive operations.

package exclusive

import "github.com/forgeyard/forgeyard/cluster"

// The refusals. The first two are also what the state machine answers.
var (
	// ErrHeld: another operation holds the scope.
	ErrHeld = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-CMD-004", Message: "the exclusive scope is held",
		Hint: "wait until the holder has completed, then try again"}
	// ErrAbandoned: nobody has the authority to complete the operation that holds the scope.
	ErrAbandoned = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-CMD-010", Message: "the exclusive scope's operation was abandoned",
		Hint: "take it over and inspect what it did; it is not known whether it finished"}
	// ErrNeedsRole: the scope is held through a coordinator role that this caller does not have.
	ErrNeedsRole = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-EXCL-001", Message: "the exclusive scope is held through its coordinator",
		Hint: "ask the node that owns the role: `forgeyard cluster roles`"}
	// ErrUninspected: the operation took over an abandoned one and does not know yet what that did.
	ErrUninspected = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-EXCL-002", Message: "what the abandoned operation did is not known yet",
		Hint: "the inspection is tried again; see its cause"}
)
