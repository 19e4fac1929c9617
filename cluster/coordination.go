// The coordination API (§310): what roles and the actor system see of the Service.

package cluster

import (
	"context"

	"github.com/forgeyard/forgeyard/fsm"
)

// Tree names the actor tree that should exist for a role on this node: under
// Epoch, or none when Epoch is 0.
type Tree struct {
	Role  fsm.Role
	Epoch fsm.Epoch
}

// TreeEvent is what a role's actor tree tells the Service.
type TreeEvent uint8

// The events of a tree.
const (
	TreeFenced TreeEvent = 1 // the fence is raised: reconciliation may write
	TreeActive TreeEvent = 2 // reconciliation passed: loops may run
	TreeFailed TreeEvent = 3 // cannot become active, or the restart budget is spent: give the role up
	TreeEnded  TreeEvent = 4 // Terminated was received and every loop goroutine has ended
)

// Coordination is what roles and services see of the Service (§310).
type Coordination interface {
	// AcquireRole returns the guard of an already committed assignment to this
	// process; it never proposes. NotLeader (FY-ROLE-001) otherwise.
	AcquireRole(ctx context.Context, role fsm.Role) (RoleGuard, error)
	// CurrentView returns the cached committed view.
	CurrentView(ctx context.Context) (View, error)
}

// Trees is what the actor system sees of the Service.
type Trees interface {
	Coordination
	// Desired returns the tree that should exist now. Whoever has been told of an
	// epoch owes a Report of TreeEnded for it, also when no tree was started; an
	// epoch that nobody was told of needs none.
	Desired(role fsm.Role) Tree
	// Changes hints that some Desired changed; coalescing, may be lost.
	Changes() (hint <-chan struct{}, stop func())
	// Report tells what happened to the tree of an epoch; code and reason
	// matter for TreeFailed only. Reports of other epochs are ignored.
	Report(role fsm.Role, epoch fsm.Epoch, ev TreeEvent, code, reason string)
}
