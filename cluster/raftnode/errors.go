// The errors of the Raft engine, each with its stable code.

package raftnode

import "github.com/forgeyard/forgeyard/cluster"

// The errors that Open, Propose and the membership calls return.
var (
	// ErrStoreBackwards: the log store is older than what this node is known to have had.
	ErrStoreBackwards = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-004", Message: "the log store went backwards",
		Hint: "an old copy was put in its place; restore the newest one, or remove the node and join under a new identity"}
	// ErrStoreUnmarked: the log store holds state but the identity marker is gone.
	ErrStoreUnmarked = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-006", Message: "the log store holds state but the identity marker is missing",
		Hint: "restore the identity directory that belongs to this log store"}
	// ErrStoreStalled: one log write has been outstanding too long.
	ErrStoreStalled = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-007", Message: "a log write hangs",
		Hint: "check the disk under the data directory; the node stops so that another one can lead"}

	// ErrOutcomeUnknown: the proposal was handed to the log, but whether it is committed is not known here.
	ErrOutcomeUnknown = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-RAFT-002", Message: "leadership was lost while the change was being committed",
		Hint: "retry with the same request id, or read the view: the change may have been made", OutcomeUnknown: true}
	// ErrNotPermitted: the sender may not propose this.
	ErrNotPermitted = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-003", Message: "this node may not propose that",
		Hint: "a member proposes only what it says of itself"}
	// ErrTimers: the configured timers cannot work together.
	ErrTimers = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-005", Message: "the consensus timers cannot work",
		Hint: "keep lease ≤ heartbeat ≤ election, and the lease at least a quarter of the heartbeat"}
	// ErrApplyStalled: the state machine hangs in a committed entry.
	ErrApplyStalled = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-011", Message: "the state machine hangs",
		Hint: "restart this node; keep its log of the last minutes, it is a defect"}
	// ErrHandoverStuck: the library still takes leadership for being handed over, long after nothing is.
	ErrHandoverStuck = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-012", Message: "a hand-over of leadership never ends",
		Hint: "restart this node, if nothing has: another voter leads meanwhile"}
	// ErrConfigurationMoved: the membership changed, or is changing, under this change.
	ErrConfigurationMoved = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-RAFT-008", Message: "the membership is changing",
		Hint: "bring every voter up or remove those that are gone, read the members again, then decide"}
	// ErrSuperseded: another process announced itself under this node id.
	ErrSuperseded = &cluster.Error{Kind: cluster.Fenced, Code: "FY-RAFT-009", Message: "another process runs under this node id",
		Hint: "two machines share one identity: stop one and issue it its own certificate"}

	// ErrBootstrapTwice: bootstrap over existing state (§60).
	ErrBootstrapTwice = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-BOOT-001", Message: "this node already belongs to a cluster",
		Hint: "start without --bootstrap"}
)
