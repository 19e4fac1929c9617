// The faults, and how often each is drawn; what is owed of each over runs is in testkit/record.

package chaos

import (
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/scenario"
)

// Fault is one kind of fault with the scenario that makes it and checks what follows.
type Fault struct {
	Name  string
	Often int  // cards in a deck
	Calm  bool // makes its own traffic and needs that there is no other
	Run   func(testing.TB, *scenario.World)
}

// processes is the suite of the record under which these faults count.
const processes = "processes"

// Bounds of the scenarios in a chaos run.
const (
	leasesBeforeKill = 500 // less traffic would prove nothing
	postgresAway     = 30 * time.Second
	postgresAsleep   = 8 * time.Second
	followerAsleep   = 10 * time.Second
	heldJobs         = 4
)

// Faults lists every kind that this process may make; some need a privileged one.
func Faults() []Fault {
	all := processFaults()
	if fleet.Privileged() {
		all = append(all, privilegedFaults()...)
	}
	return all
}

func processFaults() []Fault {
	all := []Fault{
		{Name: "kill the owner", Often: 4, Run: func(t testing.TB, w *scenario.World) { scenario.KillOwner(t, w, leasesBeforeKill) }},
		{Name: "pause the owner", Often: 4, Run: scenario.PauseOwner},
		{Name: "isolate the owner", Often: 4, Run: scenario.IsolateOwner},
		{Name: "lose the quorum", Often: 1, Calm: true, Run: func(t testing.TB, w *scenario.World) { scenario.LoseQuorum(t, w, heldJobs) }},
		{Name: "postgres away for the owner", Often: 1, Run: scenario.CutOwnerFromPostgres},
		{Name: "a following owner loses the leader", Often: 1, Run: scenario.CutOwnersLeaderLink},
		{Name: "postgres away for all", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.StopPostgres(t, w, postgresAway) }},
		{Name: "postgres away for an idle fleet", Often: 1, Calm: true, Run: scenario.StopIdlePostgres},
		{Name: "postgres asleep", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.PausePostgres(t, w, postgresAsleep) }},
		{Name: "a follower asleep", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.PauseFollower(t, w, followerAsleep) }},
		{Name: "the reply of a lease batch lost", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.LoseLeaseReply(t, w, false) }},
		{Name: "its last message lost", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.LoseLeaseReply(t, w, true) }},
		{Name: "the reply of completions lost", Often: 1, Run: scenario.LoseCompletionReply},
		{Name: "the reply of a submission lost", Often: 1, Calm: true, Run: scenario.LoseSubmissionReply},
		{Name: "a disk refuses a sync", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.FailDisk(t, w, scenario.RefusedSync()) }},
		{Name: "a disk refuses a write", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.FailDisk(t, w, scenario.RefusedWrite()) }},
		{Name: "a disk hangs in a sync", Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.FailDisk(t, w, scenario.HungSync()) }},
		{Name: "told to stop while the store hangs", Often: 1, Run: scenario.StopOnHungStore},
		{Name: "crash root", Often: 1, Run: scenario.CrashRoot},
	}
	for _, kind := range scenario.Kinds() {
		all = append(all, Fault{Name: "crash " + string(kind), Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.CrashActor(t, w, kind) }})
	}
	return all
}

// privilegedFaults need networks and disks of the daemons' own.
func privilegedFaults() []Fault {
	all := []Fault{{Name: "the leader's disk full", Often: 1, Run: scenario.FillDisk}}
	for _, how := range []fleet.Cutting{fleet.Refuse, fleet.Forbid, fleet.Unplug} {
		all = append(all, Fault{Name: "isolate the owner, " + string(how), Often: 1, Run: func(t testing.TB, w *scenario.World) { scenario.IsolateOwnerBy(t, w, how) }})
	}
	return all
}
