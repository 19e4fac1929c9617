// The errors of the Raft engine, each with its stable code.

package raftnode

import "github.com/forgeyard/forgeyard/cluster"

// The errors that Open, Propose and the membership calls return.
var (
	// ErrStoreInUse: another process holds the log store.
	ErrStoreInUse = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-001", Message: "the data directory is in use",
		Hint: "another forgeyard process runs on this directory; stop it or choose another directory"}
	// ErrStoreEmptied: this node was a member, but its log store is gone.
	ErrStoreEmptied = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-002", Message: "the log store is missing or empty, though this node has run before",
		Hint: "an emptied voter could vote twice; restore the volume, or remove the node and join under a new identity"}
	// ErrStoreCorrupt: the log store or the snapshots cannot be read.
	ErrStoreCorrupt = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-003", Message: "the log store is corrupt",
		Hint: "the files were left as they are; keep them, remove the node and join under a new identity"}
	// ErrStoreBackwards: the log store is older than what this node is known to have had.
	ErrStoreBackwards = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-004", Message: "the log store went backwards",
		Hint: "an old copy was put in its place; restore the newest one, or remove the node and join under a new identity"}
	// ErrStoreForeign: the directory belongs to another node or cluster.
	ErrStoreForeign = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-005", Message: "the data directory belongs to another node",
		Hint: "start with the certificate this directory was made with, or choose an empty directory"}
	// ErrStoreUnmarked: the log store holds state but the identity marker is gone.
	ErrStoreUnmarked = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-006", Message: "the log store holds state but the identity marker is missing",
		Hint: "restore the identity directory that belongs to this log store"}
	// ErrStoreStalled: one log write has been outstanding too long.
	ErrStoreStalled = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-007", Message: "a log write hangs",
		Hint: "check the disk under the data directory; the node stops so that another one can lead"}
	// ErrStoreFailed: the log store answered with an error.
	ErrStoreFailed = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-STORE-008", Message: "the log store failed",
		Hint: "check the disk under the data directory (space, permissions, I/O errors)"}

	// ErrOutcomeUnknown: the proposal was handed to the log, but whether it is committed is not known here.
	ErrOutcomeUnknown = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-RAFT-002", Message: "leadership was lost while the change was being committed",
		Hint: "retry with the same request id, or read the view: the change may have been made", OutcomeUnknown: true}
	// ErrNotPermitted: the sender may not propose this.
	ErrNotPermitted = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-003", Message: "this node may not propose that",
		Hint: "a member proposes only what it says of itself"}
	// ErrStoppedApplying: a committed entry is of a kind or version this build does not know.
	ErrStoppedApplying = &cluster.Error{Kind: cluster.IncompatibleVersion, Code: "FY-RAFT-004", Message: "a committed entry needs a newer build, so this node stopped applying",
		Hint: "upgrade this node"}
	// ErrTimers: the configured timers cannot work together.
	ErrTimers = &cluster.Error{Kind: cluster.Internal, Code: "FY-RAFT-005", Message: "the consensus timers cannot work",
		Hint: "keep lease ≤ heartbeat ≤ election, and the lease at least a quarter of the heartbeat"}
	// ErrClosed: the engine was closed.
	ErrClosed = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-RAFT-006", Message: "the coordination engine is closed"}
	// ErrTimeout: no answer within the bound, and the change may have been made.
	ErrTimeout = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-RAFT-007", Message: "no answer in time",
		Hint: "retry with the same request id, or read the view: the change may have been made", OutcomeUnknown: true}
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
