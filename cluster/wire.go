// Errors across hops: from the state machine's rejections, and to and from the fields of a message.

package cluster

import (
	"errors"

	"github.com/forgeyard/forgeyard/fsm"
)

// rejected gives each rejection its kind and code. A rejection is final for the
// proposal as it stands: the outcome is known and nothing changed.
var rejected = map[fsm.RejectCode]Error{
	fsm.RejectInvalid:       {Kind: Internal, Code: "FY-CMD-001"},
	fsm.RejectUninitialised: {Kind: MembershipConflict, Code: "FY-CMD-002", Hint: "bootstrap the cluster on one node first"},
	fsm.RejectInitialised:   {Kind: MembershipConflict, Code: "FY-CMD-003", Hint: "start without --bootstrap"},
	fsm.RejectStaleEpoch:    {Kind: Fenced, Code: ErrFenced.Code, Hint: ErrFenced.Hint},
	fsm.RejectStaleLeader:   {Kind: Fenced, Code: ErrFenced.Code, Hint: ErrFenced.Hint},
	fsm.RejectIncarnation:   {Kind: Fenced, Code: ErrFenced.Code, Hint: "another process runs under this node id; only the newest may act"},
	fsm.RejectNotOwner:      {Kind: Fenced, Code: ErrFenced.Code, Hint: ErrFenced.Hint},
	fsm.RejectHeld:          {Kind: MembershipConflict, Code: "FY-CMD-004", Hint: "wait until the holder has completed, then try again"},
	fsm.RejectConfig:        {Kind: MembershipConflict, Code: "FY-CMD-005", Hint: "read the members again, then decide"},
	fsm.RejectMember:        {Kind: MembershipConflict, Code: "FY-CMD-006", Hint: "see `forgeyard cluster members`"},
	fsm.RejectRemoved:       {Kind: JoinRejected, Code: "FY-CMD-007", Hint: "issue the machine a new node identity"},
	fsm.RejectBound:         {Kind: MembershipConflict, Code: "FY-CMD-008", Hint: "remove members that are gone"},
	fsm.RejectAbandoned:     {Kind: MembershipConflict, Code: "FY-CMD-010", Hint: "take it over and inspect what it did; it is not known whether it finished"},
	fsm.RejectUnsupported:   {Kind: IncompatibleVersion, Code: "FY-CMD-009", Hint: "upgrade every voter first"},
}

// lasting are the codes of the rejections that no later entry takes back: epochs,
// terms and versions only rise, an incarnation and a removed id never return.
// Membership, a held scope and a bound may pass.
var lasting = map[string]bool{
	rejected[fsm.RejectInvalid].Code: true, rejected[fsm.RejectInitialised].Code: true, rejected[fsm.RejectStaleEpoch].Code: true,
	rejected[fsm.RejectConfig].Code: true, rejected[fsm.RejectRemoved].Code: true,
}

// Settles reports whether err, which an attempt to have c committed brought, makes
// the outcome of every attempt known, also of one that may still be on its way: the
// state machine has refused c for a reason that lasts. Nothing else that is of the
// same kind does: a transport refuses strangers and older builds, too. A code that
// this build does not know settles nothing.
func Settles(err error, c fsm.Command) bool {
	if _, begins := c.(fsm.StartExclusiveOperation); begins {
		return false // it expects no epoch: what refuses it now may accept it later
	}
	var e *Error
	return errors.As(err, &e) && lasting[e.Code]
}

// FromRejection turns a rejection of the state machine into a coordination error.
func FromRejection(r *fsm.Rejection) *Error {
	e, ok := rejected[r.Code]
	if !ok {
		e = Error{Kind: Internal, Code: "FY-CMD-001"}
	}
	e.Message = r.Message
	return &e
}

// WireFields are the parts of the error that cross a hop. The local cause becomes part of the message.
func (e *Error) WireFields() (kind uint8, code, message, hint string, outcomeUnknown bool) {
	message = e.Message
	if e.Err != nil {
		message += ": " + e.Err.Error()
	}
	return uint8(e.Kind), e.Code, message, e.Hint, e.OutcomeUnknown
}

// FromWireFields is the inverse of WireFields. A kind that this build does not
// know becomes Internal, which nobody retries blindly.
func FromWireFields(kind uint8, code, message, hint string, outcomeUnknown bool) *Error {
	k := Kind(kind)
	if _, known := kindNames[k]; !known {
		k = Internal
	}
	return &Error{Kind: k, Code: code, Message: message, Hint: hint, OutcomeUnknown: outcomeUnknown}
}
