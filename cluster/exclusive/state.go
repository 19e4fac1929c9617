// What a view says of a scope.

package exclusive

import "github.com/forgeyard/forgeyard/fsm"

// State is where an exclusive scope stands.
type State string

// The three states of a scope.
const (
	Free    State = "Free"
	Held    State = "Held"    // a living process has the authority to complete it
	Unknown State = "Unknown" // abandoned: nobody knows what it did until a successor has inspected it (§246)
)

// StateOf returns where a scope stands and the operation that holds it, if any.
func StateOf(v fsm.View, s fsm.Scope) (State, fsm.ExclusiveLease) {
	x, held := v.Held(s)
	switch {
	case !held:
		return Free, fsm.ExclusiveLease{Scope: s}
	case v.Abandoned(x):
		return Unknown, x
	}
	return Held, x
}
