// A leader that is killed forgets nothing.

package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestLeaderForgetsNothing(t *testing.T) {
	db := pgtest.New(t) // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		f := New(t, db, 3, 1) // three voters; the 1 seeds the network
		ran := &starts{count: map[string]int{}}
		f.StartAgent("agent-1", 4, ran.executor(300*time.Millisecond))
		id := f.submit(f.Nodes[0], run("work", 20))
		old, before := f.ActiveAbove(fsm.SchedulerLeader, 0, f.Nodes...)
		old.Kill() // or Leave; f.Isolate, f.Cut, f.Starve, f.Net.SetWeather
		f.ActiveAbove(fsm.SchedulerLeader, before, f.except(old)...)
		f.awaitDone(f.except(old)[0], id, 20)
		ran.requireOnce(t)
	})
}
