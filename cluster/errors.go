// The error model of coordination (§314, §315): nine kinds, a stable code each, one retry rule per kind.

package cluster

import (
	"errors"
	"fmt"
)

// Kind is one of the nine kinds of coordination error (§314).
type Kind uint8

// The nine kinds.
const (
	NotLeader           Kind = 1 // refresh the view and retry with bounded back-off
	NoQuorum            Kind = 2 // wait and alert
	Fenced              Kind = 3 // stop the role; never retry with the same guard
	MembershipConflict  Kind = 4 // re-read the configuration, then decide
	JoinRejected        Kind = 5 // final for that token
	IncompatibleVersion Kind = 6 // do not retry; upgrade
	StorageFailure      Kind = 7 // fail safe, give up roles
	TransportFailure    Kind = 8 // retry with back-off; a sent proposal's outcome is unknown
	Internal            Kind = 9 // never retried blindly
)

var kindNames = map[Kind]string{
	NotLeader: "NotLeader", NoQuorum: "NoQuorum", Fenced: "Fenced", MembershipConflict: "MembershipConflict",
	JoinRejected: "JoinRejected", IncompatibleVersion: "IncompatibleVersion", StorageFailure: "StorageFailure",
	TransportFailure: "TransportFailure", Internal: "Internal",
}

func (k Kind) String() string {
	if n, ok := kindNames[k]; ok {
		return n
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Retryable reports whether the same call may simply be made again later (§315).
func (k Kind) Retryable() bool { return k == NotLeader || k == NoQuorum || k == TransportFailure }

// Error is what every coordination call returns. It survives every hop: it is
// encoded with these fields and no other (Err stays on the node where it arose).
type Error struct {
	Kind           Kind   `json:"kind"`
	Code           string `json:"code"`            // stable, FY-AREA-NNN; see `forgeyard explain`
	Message        string `json:"message"`         // what happened and why
	Hint           string `json:"hint,omitempty"`  // what to do now
	OutcomeUnknown bool   `json:"outcome_unknown"` // the change may have been made: read the truth before retrying
	Err            error  `json:"-" cbor:"-"`      // local cause
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Code, e.Message)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the local cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches by code, so that errors.Is works against the sentinel values below across hops.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// KindOf returns the kind of a coordination error anywhere in the chain; Internal for any other error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// OutcomeUnknown reports whether the failed call may have taken effect.
func OutcomeUnknown(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.OutcomeUnknown
}

// Wrap returns a copy of e with a cause and a specific message.
func (e *Error) Wrap(err error, format string, args ...any) *Error {
	c := *e
	c.Err = err
	if format != "" {
		c.Message = fmt.Sprintf(format, args...)
	}
	return &c
}

// CodeDatabaseAhead is the release code of a role whose database fence stands
// above the committed epoch at the same generation: Raft state was lost, or a
// second fleet uses the database. The role stays unassigned until an operator
// raises the generation; further grants would climb over the fence and hide it.
const CodeDatabaseAhead = "FY-DB-006"

// CodeDatabaseHistory is the release code of a role whose database fence was
// raised on another history of PostgreSQL; it too needs the operator.
const CodeDatabaseHistory = "FY-DB-007"

// The errors of guards and of the service. Packages add their own beside the code that returns them.
var (
	// ErrFenced (FENCED): the epoch is no longer, or not yet, the current one (§95).
	ErrFenced = &Error{Kind: Fenced, Code: "FENCED", Message: "this epoch may not write", Hint: "the role stops and the current owner goes on; nothing to do"}
	// ErrNotOwner: the committed view gives the role to someone else.
	ErrNotOwner = &Error{Kind: NotLeader, Code: "FY-ROLE-001", Message: "the committed view does not give this role to this process"}
	// ErrUnconfirmed: this node cannot confirm that its view is current, so its guards refuse.
	ErrUnconfirmed = &Error{Kind: Fenced, Code: "FY-ROLE-002", Message: "the committed view could not be confirmed in time", Hint: "check that this node reaches a majority of the voters"}
	// ErrNotRenewed: the state machine refuses to renew this process's grant, so the role is released.
	ErrNotRenewed = &Error{Kind: Fenced, Code: "FY-ROLE-003", Message: "the cluster refused to renew the grant of this process"}
	// ErrNotRunnable: this process was given a role that it does not run.
	ErrNotRunnable = &Error{Kind: Fenced, Code: "FY-ROLE-004", Message: "this process does not run the role"}
	// ErrClosing: this process gives its roles up because it ends.
	ErrClosing = &Error{Kind: Fenced, Code: "FY-ROLE-005", Message: "this process is shutting down"}
	// ErrTreeDied: the role's actors ended although nobody had told them to.
	ErrTreeDied = &Error{Kind: Internal, Code: "FY-ROLE-006", Message: "the role's actors ended by themselves"}
	// ErrTreeHung: the role's actors or loops did not end, so the process ends instead.
	ErrTreeHung = &Error{Kind: Internal, Code: "FY-ROLE-007", Message: "the role's work did not end in time"}
	// ErrNotLeader: the call needs the leader and none is known or it moved.
	ErrNotLeader = &Error{Kind: NotLeader, Code: "FY-RAFT-001", Message: "this node does not lead", Hint: "retry; the fleet elects a leader by itself"}
	// ErrNoQuorum: a majority of the voters cannot be reached.
	ErrNoQuorum = &Error{Kind: NoQuorum, Code: "FY-QUORUM-001", Message: "no majority of the voters can be reached", Hint: "bring voters back; running jobs go on meanwhile"}
)
