// Why a guard was revoked, as a word for the trace and as the error that its context tells.

package cluster

import (
	"fmt"

	"github.com/forgeyard/forgeyard/fsm"
)

var causeNames = map[cause]string{
	causeMoved: "moved", causeRegenerated: "regenerated", causeUnconfirmed: "unconfirmed", causeFenced: "fenced",
	causeUnknown: "unknown", causeGaveUp: "gave_up", causeDied: "died", causeDeclined: "declined",
}

func (c cause) String() string {
	if n, ok := causeNames[c]; ok {
		return n
	}
	return fmt.Sprintf("cause(%d)", uint8(c))
}

// err is the error of a revocation that no guard brought.
func (c cause) err(role fsm.Role, epoch fsm.Epoch, e event) error {
	switch c {
	case causeMoved:
		if e.grant.epoch == epoch {
			return ErrNotOwner.Wrap(nil, "%s epoch %d was vacated", role, epoch)
		}
		return ErrNotOwner.Wrap(nil, "%s epoch %d was followed by epoch %d", role, epoch, e.grant.epoch)
	case causeRegenerated:
		return ErrFenced.Wrap(nil, "%s epoch %d: the cluster was recovered into generation %d", role, epoch, e.grant.generation)
	case causeUnconfirmed:
		return ErrUnconfirmed.Wrap(nil, "%s epoch %d: no confirmation within %s", role, epoch, ConfirmationBound)
	case causeGaveUp:
		return &Error{Kind: Fenced, Code: e.code, Message: fmt.Sprintf("%s epoch %d was given up: %s", role, epoch, e.reason)}
	case causeDied:
		return ErrTreeDied.Wrap(nil, "%s epoch %d: %s", role, epoch, ErrTreeDied.Message)
	case causeDeclined:
		return &Error{Kind: Fenced, Code: e.code, Message: fmt.Sprintf("%s epoch %d: %s", role, epoch, e.reason)}
	}
	return ErrFenced.Wrap(nil, "%s epoch %d: %s", role, epoch, c)
}
