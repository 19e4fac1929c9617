// The two commands of a plan, and the codes that say why a role was vacated.

package placement

import (
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Why the coordination leader vacates a role. They are committed with the
// release and shown by `forgeyard cluster roles`.
const (
	CodeOwnerSilent = "FY-ROLE-022" // no ping from the owner within cluster.OwnerSilence
	CodeInactive    = "FY-ROLE-023" // not Active within cluster.InactiveBound
	CodeNoPostgres  = "FY-ROLE-024" // owner without PostgreSQL for PostgresGrace
	CodeUnplaceable = "FY-ROLE-025" // no node can run the role after a change of leader
)

func (p *planner) assign(g fsm.RoleGrant, to fsm.Member) fsm.Command {
	return fsm.AssignRole{
		Leader: p.View.LeaderEpoch, Role: g.Role, ExpectedEpoch: g.Epoch,
		Owner: to.Node, Incarnation: to.Incarnation,
	}
}

func (p *planner) vacate(g fsm.RoleGrant, code, reason string, args ...any) fsm.Command {
	for i, a := range args {
		if d, ok := a.(time.Duration); ok {
			args[i] = d.Round(10 * time.Millisecond)
		}
	}
	return fsm.ReleaseRole{
		Leader: p.View.LeaderEpoch, Role: g.Role, ExpectedEpoch: g.Epoch,
		Node: g.Owner, Incarnation: g.Incarnation,
		Code: code, Reason: fsm.Clip(fmt.Sprintf(reason, args...), fsm.MaxReason),
	}
}
