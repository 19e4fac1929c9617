// Errors of this package: why a command was rejected, why bytes were not decoded.

package fsm

import (
	"errors"
	"fmt"
)

// Decoding and size errors; match them with errors.Is.
var (
	// ErrIncompatible: a version or command this build does not know. A replica
	// that meets it stops applying; it never skips (§151).
	ErrIncompatible = errors.New("incompatible version")
	// ErrMalformed: bytes that no build of this version writes.
	ErrMalformed = errors.New("malformed")
	// ErrTooLarge: more bytes than MaxCommand or MaxSnapshot.
	ErrTooLarge = errors.New("too large")
	// ErrIntegrity: a snapshot whose checksum does not match (§53).
	ErrIntegrity = errors.New("checksum mismatch")
)

// RejectCode says which precondition of a command did not hold.
type RejectCode uint8

// The reasons to reject a command.
const (
	RejectInvalid       RejectCode = 1  // no state accepts this command
	RejectUninitialised RejectCode = 2  // InitCluster has not been applied yet
	RejectInitialised   RejectCode = 3  // InitCluster was applied before
	RejectStaleEpoch    RejectCode = 4  // the expected epoch is not the current one
	RejectStaleLeader   RejectCode = 5  // the proposer does not hold the current LeaderEpoch
	RejectIncarnation   RejectCode = 6  // not the committed incarnation of that node
	RejectNotOwner      RejectCode = 7  // the role or scope belongs to someone else
	RejectHeld          RejectCode = 8  // the exclusive scope is held; Current is the holder's epoch
	RejectConfig        RejectCode = 9  // the expected configuration version is not the current one
	RejectMember        RejectCode = 10 // the node's membership does not allow this
	RejectRemoved       RejectCode = 11 // the id was removed and may never return
	RejectBound         RejectCode = 12 // a bound of limits.go would be exceeded
	RejectUnsupported   RejectCode = 13 // a member does not support the feature version
	RejectAbandoned     RejectCode = 14 // the exclusive scope's operation is abandoned; Current is its epoch
)

var rejectNames = map[RejectCode]string{
	RejectInvalid: "invalid", RejectUninitialised: "uninitialised", RejectInitialised: "initialised",
	RejectStaleEpoch: "stale epoch", RejectStaleLeader: "stale leader", RejectIncarnation: "incarnation",
	RejectNotOwner: "not owner", RejectHeld: "held", RejectConfig: "configuration", RejectMember: "member",
	RejectRemoved: "removed id", RejectBound: "bound", RejectUnsupported: "unsupported", RejectAbandoned: "abandoned",
}

func (c RejectCode) String() string { return enumName("RejectCode", rejectNames, c) }

// Rejection is the error of a command that was refused and changed nothing.
// Every replica rejects the same entry with the same value.
type Rejection struct {
	Code    RejectCode
	Message string        // one sentence with the facts that decided
	Current Epoch         // the current epoch of what was expected; 0 when no epoch was compared
	Config  ConfigVersion // the current configuration version
}

func (r *Rejection) Error() string { return fmt.Sprintf("rejected (%s): %s", r.Code, r.Message) }

func reject(code RejectCode, format string, args ...any) *Rejection {
	return &Rejection{Code: code, Message: fmt.Sprintf(format, args...)}
}

func staleEpoch(what string, expected, current Epoch) *Rejection {
	r := reject(RejectStaleEpoch, "%s is at epoch %d, not %d", what, current, expected)
	r.Current = current
	return r
}
