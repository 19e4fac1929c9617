// Faults that fleets like this met in the field, by kind; testkit/FIELD_FAULTS.md lists them all.

package runner_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// Two daemons take the same submission at the same moment. The database decides
// which is the first; the other answers with the same run.
func TestFieldFaultDoubleRun(t *testing.T) {
	t.Run("FB-074", func(t *testing.T) {
		p := newPlane(t)
		spec := runner.RunSpec{Name: "r", Jobs: []runner.JobSpec{{Name: "j", Argv: []string{"true"}}}}
		const pairs = 50
		for i := range pairs {
			var ids [2]string
			var made [2]bool
			var both sync.WaitGroup
			for k := range ids {
				both.Go(func() {
					var err error
					if ids[k], made[k], err = runner.Submit(t.Context(), p.store, spec, fmt.Sprint("key-", i)); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			require.Equal(t, ids[0], ids[1])
			require.NotEqual(t, made[0], made[1], "one of them made it")
		}
		require.Equal(t, pairs, one[int](p, `SELECT count(*) FROM forge.runs`))
		require.Equal(t, pairs, one[int](p, `SELECT count(*) FROM forge.jobs`))
	})
}
