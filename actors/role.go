// RoleSpec: what a coordinator hands to the actor system, without a line of actor code.

package actors

import (
	"context"
	"fmt"
	"strings"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// RoleSpec describes one coordinated role. The role actor calls Raise, then
// Reconcile, then runs the Loops, all off its mailbox and all with the guard's
// context.
type RoleSpec struct {
	Role fsm.Role
	// Raise moves the database fence to the guard's epoch before anything is read (§83).
	Raise func(ctx context.Context, g cluster.RoleGuard) error
	// Reconcile scans the authoritative state before any loop starts (§88) and
	// returns one line that says what it found.
	Reconcile func(ctx context.Context, g cluster.RoleGuard) (string, error)
	// Loops run while the guard is active.
	Loops []Loop
}

func (s RoleSpec) check() error {
	if !s.Role.Valid() || s.Raise == nil || s.Reconcile == nil {
		return fmt.Errorf("actors: role %s needs Raise and Reconcile", s.Role)
	}
	seen := map[string]bool{}
	for _, l := range s.Loops {
		if l.Name == "" || strings.Contains(l.Name, "/") || l.Run == nil || seen[l.Name] {
			return fmt.Errorf("actors: loop %q of role %s needs a name of its own without a slash, and Run", l.Name, s.Role)
		}
		seen[l.Name] = true
	}
	return nil
}

// Loop is one leader-owned loop. Run returns when ctx ends; an error or a panic
// restarts the loop inside the epoch after a back-off, within the budget. After an
// error of Stuck the role is given up at once.
type Loop struct {
	Name string
	Run  func(ctx context.Context, g cluster.RoleGuard) error
}

// Stuck marks the error of a loop that can do nothing on this node, for a reason
// that another node need not have. One that fails slowly would never spend the
// budget of its restarts, and the role would stay active where nothing of it can be done.
func Stuck(err error) error { return &stuckError{err} }

type stuckError struct{ error }

func (e *stuckError) Unwrap() error { return e.error }
