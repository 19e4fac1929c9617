// The errors that both engines return: what can happen to a store, and to a call.

package cluster

// Of the durable store of an engine.
var (
	// ErrStoreInUse: another process holds the store.
	ErrStoreInUse = &Error{Kind: StorageFailure, Code: "FY-STORE-001", Message: "the data directory is in use",
		Hint: "another forgeyard process runs on this directory; stop it or choose another directory"}
	// ErrStoreEmptied: this node has run here before, but the store is gone.
	ErrStoreEmptied = &Error{Kind: StorageFailure, Code: "FY-STORE-002", Message: "the store is missing or empty, though this node has run before",
		Hint: "an emptied voter could vote twice and epochs would start again; restore the volume, or remove the node and join under a new identity"}
	// ErrStoreCorrupt: the store cannot be read.
	ErrStoreCorrupt = &Error{Kind: StorageFailure, Code: "FY-STORE-003", Message: "the store is corrupt",
		Hint: "the files were left as they are; keep them, remove the node and join under a new identity"}
	// ErrStoreForeign: the directory belongs to another node or cluster.
	ErrStoreForeign = &Error{Kind: StorageFailure, Code: "FY-STORE-005", Message: "the data directory belongs to another node",
		Hint: "start with the identity this directory was made with, or choose an empty directory"}
	// ErrStoreFailed: the store answered with an error.
	ErrStoreFailed = &Error{Kind: StorageFailure, Code: "FY-STORE-008", Message: "the store failed",
		Hint: "check the disk under the data directory (space, permissions, I/O errors)"}
	// ErrNewerBuild: what was committed is of a kind or version this build does not know.
	ErrNewerBuild = &Error{Kind: IncompatibleVersion, Code: "FY-RAFT-004", Message: "the committed state needs a newer build, so this node does not apply it",
		Hint: "upgrade this node"}
)

// Of a call to an engine.
var (
	// ErrEngineClosed: the engine was closed.
	ErrEngineClosed = &Error{Kind: NotLeader, Code: "FY-RAFT-006", Message: "the coordination engine is closed"}
	// ErrTimeout: no answer within the bound, and the change may have been made.
	ErrTimeout = &Error{Kind: TransportFailure, Code: "FY-RAFT-007", Message: "no answer in time",
		Hint: "retry with the same request id, or read the view: the change may have been made", OutcomeUnknown: true}
	// ErrMalformedCommand: no state of any cluster would accept the command.
	ErrMalformedCommand = &Error{Kind: Internal, Code: "FY-CMD-001", Message: "the command is malformed"}
)
