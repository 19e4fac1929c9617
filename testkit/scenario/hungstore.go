// A daemon that is told to stop while the artifact store hangs under it: it ends all the same.

package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/disk"
	"github.com/forgeyard/forgeyard/testkit/fleet"
)

const (
	// artifactStore is the directory of the store that all daemons share, below the fleet's.
	artifactStore = "cas/"
	// exitStuck is the exit status of a daemon that its own work keeps from stopping.
	exitStuck = 70
	stuckCode = "FY-STOP-001"
)

// StopOnHungStore has the file system of the artifact store hang under one daemon that
// stores logs for its agents, and tells it to stop. It ends within 20 s and says why; jobs
// go on without it, and it is whole when it is started again on a sound file system. It
// needs what FailDisk needs.
func StopOnHungStore(t testing.TB, w *World) {
	ctx := bounded(t)
	victim := w.Nodes()[0]
	p := w.supervise(t, victim, build(t, "testkit/disk/confine"), w.Dir())
	w.moreLeases(t, 10)
	p.Inject(disk.Fault{Op: disk.Sync, Path: artifactStore, Delay: disk.Hang})
	var runs []string
	w.attract(t, func() bool { return p.Hits()[0] > 0 }, func() {
		runs = append(runs, w.submitSpec(t, fleet.ShellRun("logs", 40, "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done")))
	})
	said, told := logged(t, victim, stuckCode), now()
	require.NoError(t, victim.Terminate())
	code, err := victim.WaitExit(ctx)
	require.NoError(t, err)
	within(t, 20*time.Second, told, now(), victim.Name+" ended")
	require.Equal(t, exitStuck, code, "see %s", victim.LogFile())
	require.Greater(t, logged(t, victim, stuckCode), said, "see %s", victim.LogFile())
	w.moreLeases(t, 10)
	require.NoError(t, victim.Resume(ctx))
	w.whole(t, victim)
	for _, run := range runs {
		w.ended(t, run, runner.RunSucceeded)
	}
}

// attract has the agents work, and kills and resumes the daemons after the first, until
// what the agents do shows: whoever loses a daemon goes to another one.
func (w *World) attract(t testing.TB, shows func() bool, work func()) {
	t.Helper()
	for i := range 4 * tries {
		work()
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
			if shows() {
				return
			}
		}
		other := w.Nodes()[1+i%2]
		require.NoError(t, other.Kill())
		<-time.After(time.Second)
		require.NoError(t, other.Resume(bounded(t)))
		w.whole(t, other)
	}
	require.FailNow(t, "no agent came")
}
