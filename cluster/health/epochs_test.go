// The epochs of Raft and of PostgreSQL side by side: which pairs are consistent.

package health

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func TestDBEpochConsistency(t *testing.T) {
	v := fsm.View{Generation: 2, Roles: []fsm.RoleGrant{{Role: fsm.SchedulerLeader, Epoch: 17}}}
	at := func(g fsm.Generation, e fsm.Epoch) Stamp { return Stamp{g, e} }
	for name, c := range map[string]struct {
		role   fsm.Role
		stored StoredEpochs
		want   string
	}{
		"equal":                           {fsm.SchedulerLeader, StoredEpochs{at(2, 17), at(2, 17)}, ""},
		"the fence is not raised yet":     {fsm.SchedulerLeader, StoredEpochs{at(2, 9), at(2, 9)}, ""},
		"an older generation":             {fsm.SchedulerLeader, StoredEpochs{at(1, 90), at(1, 90)}, ""},
		"nothing stored":                  {fsm.SchedulerLeader, StoredEpochs{}, ""},
		"rows of an owner before":         {fsm.SchedulerLeader, StoredEpochs{at(2, 17), at(2, 3)}, ""},
		"the fence is above":              {fsm.SchedulerLeader, StoredEpochs{at(2, 18), at(2, 17)}, cluster.CodeDatabaseAhead},
		"the fence is a generation above": {fsm.SchedulerLeader, StoredEpochs{at(3, 1), at(2, 17)}, cluster.CodeDatabaseAhead},
		"a role that was never granted":   {fsm.ReleaseCoordinator, StoredEpochs{Fence: at(2, 1)}, cluster.CodeDatabaseAhead},
		"rows above the fence":            {fsm.SchedulerLeader, StoredEpochs{at(2, 16), at(2, 17)}, CodeRowsAboveFence},
		"rows without a fence":            {fsm.SchedulerLeader, StoredEpochs{Rows: at(2, 1)}, CodeRowsAboveFence},
		"rows of a generation above":      {fsm.SchedulerLeader, StoredEpochs{at(2, 17), at(3, 1)}, CodeRowsAboveFence},
		"both above: the fence says it":   {fsm.SchedulerLeader, StoredEpochs{at(2, 20), at(2, 21)}, cluster.CodeDatabaseAhead},
	} {
		t.Run(name, func(t *testing.T) {
			got := CheckEpochs(v, map[fsm.Role]StoredEpochs{c.role: c.stored})
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, c.want, got[0].Code)
			require.Equal(t, c.role, got[0].Role)
			require.Contains(t, got[0].Message, c.role.String())
		})
	}
	many := CheckEpochs(v, map[fsm.Role]StoredEpochs{
		fsm.MigrationCoordinator: {Fence: at(2, 1)}, fsm.SchedulerLeader: {Fence: at(2, 18)}, fsm.ReleaseCoordinator: {Fence: at(2, 1)},
	})
	require.Equal(t, []fsm.Role{fsm.SchedulerLeader, fsm.ReleaseCoordinator, fsm.MigrationCoordinator}, []fsm.Role{many[0].Role, many[1].Role, many[2].Role})
}
