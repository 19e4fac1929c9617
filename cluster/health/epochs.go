// Database and committed epochs: neither may be behind what the other has handed out (§243).

package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Stamp is a (generation, epoch) as the database holds it; the generation is compared first.
type Stamp struct {
	Generation fsm.Generation `json:"generation"`
	Epoch      fsm.Epoch      `json:"epoch"`
}

func (s Stamp) compare(o Stamp) int {
	return cmp.Or(cmp.Compare(s.Generation, o.Generation), cmp.Compare(s.Epoch, o.Epoch))
}

func (s Stamp) String() string {
	return fmt.Sprintf("epoch %d of generation %d", s.Epoch, s.Generation)
}

// StoredEpochs is what the database holds of one role. Zero stamps mean nothing.
type StoredEpochs struct {
	Fence Stamp `json:"fence"` // of the role's row in coordination.fence
	Rows  Stamp `json:"rows"`  // the highest of the rows that the role's holders stamped
}

// EpochReader reads the stored epochs in one round trip: for each role the row
// of coordination.fence, and the maximum over the rows in use (for
// SchedulerLeader: tick, active leases, open dispatches).
type EpochReader interface {
	HighestEpochs(ctx context.Context) (map[fsm.Role]StoredEpochs, error)
}

// EpochConflict is one place where the database is ahead.
type EpochConflict struct {
	Role    fsm.Role
	Code    string
	Message string
}

// CheckEpochs compares what the database holds with the committed view, which
// must have been read after it. A fence above the committed epoch means lost
// Raft state or a second fleet on the database; rows above their fence were
// written around it. Standing below is normal: a new owner raises the fence
// some time after its grant.
func CheckEpochs(v fsm.View, stored map[fsm.Role]StoredEpochs) []EpochConflict {
	var conflicts []EpochConflict
	for role, s := range stored {
		committed := Stamp{v.Generation, v.Role(role).Epoch}
		switch {
		case s.Fence.compare(committed) > 0:
			conflicts = append(conflicts, EpochConflict{role, cluster.CodeDatabaseAhead,
				fmt.Sprintf("the fence of %s stands at %s, above the committed %s", role, s.Fence, committed)})
		case s.Rows.compare(s.Fence) > 0:
			conflicts = append(conflicts, EpochConflict{role, CodeRowsAboveFence,
				fmt.Sprintf("rows of %s carry %s, above its fence at %s", role, s.Rows, s.Fence)})
		}
	}
	slices.SortFunc(conflicts, func(a, b EpochConflict) int { return cmp.Compare(a.Role, b.Role) })
	return conflicts
}

// CodeRowsAboveFence is the code of rows with a stamp that no fence ever gave.
const CodeRowsAboveFence = "FY-DB-015"
