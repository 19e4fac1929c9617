// Early election in a fleet: a leader that is killed is followed at once, one that is cut off when the timers end.

package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestEarlyElection(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*Fleet, *Node)
		early bool
	}{
		"killed":  {func(_ *Fleet, leader *Node) { leader.Kill() }, true},
		"stopped": {func(_ *Fleet, leader *Node) { leader.Leave() }, true}, // it hands over
		"cut off": {(*Fleet).Isolate, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.New(t)
			synctest.Test(t, func(t *testing.T) {
				f := New(t, db, 3, 4)
				old := f.leader()
				f.pass(3 * time.Second) // all have followed it for a while
				at := time.Now()
				c.do(f, old)
				f.Await("another leader", func() bool {
					for _, n := range f.except(old) {
						if _, leads := n.Coordination().Leadership(); leads {
							return true
						}
					}
					return false
				})
				// From the last append, which may be up to a fifth of that old.
				require.Equal(t, c.early, time.Since(at) < raftnode.DefaultTimers().HeartbeatTimeout*4/5, "after %s", time.Since(at))
			})
		})
	}
}
