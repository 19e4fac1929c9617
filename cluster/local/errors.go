// The errors of the standalone engine, each with its stable code.

package local

import "github.com/forgeyard/forgeyard/cluster"

// The errors that Open, Propose and LinearizableView return.
var (
	// ErrInUse: another process holds the directory.
	ErrInUse = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-LOCAL-001", Message: "the data directory is in use",
		Hint: "another forgeyard process runs on this directory; stop it or choose another directory"}
	// ErrCorrupt: the state file cannot be read.
	ErrCorrupt = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-LOCAL-002", Message: "the coordination state is damaged",
		Hint: "the file was left as it is; restore it from a backup, or keep it and recover into a new generation"}
	// ErrEmptied: this directory held a state, which is gone.
	ErrEmptied = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-LOCAL-003", Message: "the coordination state is missing, though this directory has held one",
		Hint: "epochs would start again below those in the database; restore the file from a backup, or choose an empty directory"}
	// ErrForeign: the directory belongs to another cluster or node.
	ErrForeign = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-LOCAL-004", Message: "the data directory belongs to another node",
		Hint: "start with the identity this directory was made with, or choose an empty directory"}
	// ErrStoreFailed: the state could not be read or written; which state is on disk is not known.
	ErrStoreFailed = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-LOCAL-005", Message: "the data directory failed",
		Hint: "check the disk under the data directory (space, permissions, I/O errors), then restart", OutcomeUnknown: true}
	// ErrNewer: a newer build wrote the state.
	ErrNewer = &cluster.Error{Kind: cluster.IncompatibleVersion, Code: "FY-LOCAL-006", Message: "a newer build wrote the coordination state",
		Hint: "run the newer build"}
	// ErrClosed: the engine was closed.
	ErrClosed = &cluster.Error{Kind: cluster.NotLeader, Code: "FY-LOCAL-007", Message: "the coordination engine is closed"}
	// ErrBusy: the call ended before it was begun.
	ErrBusy = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-LOCAL-008", Message: "the call ended before it was begun",
		Hint: "nothing changed; try again"}
	// ErrTimeout: the call ended while the state was being written.
	ErrTimeout = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-LOCAL-009", Message: "the call ended before its outcome was known",
		Hint: "retry with the same request id, or read the view: the change may have been made", OutcomeUnknown: true}
	// ErrProposal: the proposal is not one that any node would accept.
	ErrProposal = &cluster.Error{Kind: cluster.Internal, Code: "FY-LOCAL-010", Message: "the proposal cannot be encoded"}
)
