// What is owed over runs: the list of every claim, also of what has never run.

package record

// Owed lists what is owed, each with a count of 0: it is where the table over runs begins,
// so what never ran, or never passed, is there too. A suite may count more than it owes.
func Owed() (all Counts) {
	owe := func(suite string, times int, faults ...string) {
		for _, f := range faults {
			all = append(all, Count{Suite: suite, Fault: f, Owed: times})
		}
	}
	owe(realProcesses, 3600, secondsOfThese)
	owe("processes", 20, "kill the owner", "pause the owner", "isolate the owner")
	owe("processes", 5,
		"lose the quorum", "postgres away for the owner", "a following owner loses the leader",
		"postgres away for all", "postgres away for an idle fleet", "postgres asleep", "a follower asleep",
		"the reply of a lease batch lost", "its last message lost", "the reply of completions lost", "the reply of a submission lost",
		"a disk refuses a sync", "a disk refuses a write", "a disk hangs in a sync", "told to stop while the store hangs",
		"crash root", "crash leadership-watcher", "crash role-supervisor", "crash role", "crash leader-supervisor",
		"crash coordination-leader", "crash coordination-supervisor",
		// These need networks and disks of the daemons' own.
		"the leader's disk full",
		"isolate the owner, network unreachable", "isolate the owner, prohibited", "isolate the owner, unplugged")
	owe("jobs", 1,
		"a daemon killed", "the leader killed", "a daemon paused", "two daemons killed", "PostgreSQL killed",
		"an agent killed", "an agent paused", "an agent paused past its lease")
	owe("store", 1, "the artifact store killed")
	owe("agents", 20,
		"an agent's daemon killed", "an agent cut off for 20 s, the lease lasts",
		"an agent cut off for 20 s, the lease does not", "an agent paused past its lease")
	owe("actors", 100,
		"coordination supervisor killed", "watcher killed", "leader supervisor killed", "coordination leader killed",
		"role supervisor killed", "role actor killed", "loop killed", "root killed")
	owe("models", 10_000, "a sequence with a restore in it")
	owe("models", 500_000, "a state of three owners under every fault")
	owe("models", 300_000, "a state of three owners and an agent under faults")
	owe("disk", 200, "power cut")
	for _, class := range []string{"log store", "snapshot meta", "snapshot state", "snapshot seal", "marker", "high-water mark", "tail mark"} {
		owe("disk", 100, class+": bit flipped")
		owe("disk", 50, class+": end cut off")
	}
	owe("disk", 3,
		"log: a sync fails once", "log: a sync finds no space", "log: a write fails once", "store: it cannot be made",
		"log: no space for a while", "tail mark: a write fails", "snapshot: a sync fails", "snapshot: a write fails",
		"snapshot: no space", "snapshot: the seal fails", "snapshot: the rename fails", "snapshot: its directory fails",
		"high-water mark: a sync fails", "high-water mark: of the term", "high-water mark: it has no room")
	owe("disk", 20, "slow disk of a follower", "slow disk of the leader", "disk of the leader hangs")
	owe("disk", 1, "file system full") // needs that mounting is allowed
	owe("disk", 50, "leader back at once")
	owe("seeds", 200, "a seed")
	owe("seeds", 1,
		"loss", "duplication", "reordering", "delay", "link cut", "link cut one way", "daemon isolated", "agent cut off",
		"daemon stopped", "daemon killed", "agent killed", "disk lost", "log slow", "log failing", "log hung", "actor killed",
		"token raced for", "token expired", "hand-over", "hand-over cut",
		"takeover", "fenced refusal", "unknown outcome", "election", "leader elected early", "snapshot taken", "snapshot installed",
		"hand-over failed")
	// Seconds of each; without networks of the daemons' own none counts.
	for _, line := range []string{
		"probes are refused while QUIC passes", "ICMP is dropped, followers die", "ICMP is dropped, leaders die",
		"a follower is paused for 10 s", "a learner is present", "the leader is back on its port at once", "all cores are busy",
	} {
		owe("elections", 600, line+": seconds")
	}
	owe("elections", 20, "the leader is back on its port at once: within 50ms")
	owe("soak", 1, "an hour flat")
	return all
}

// Owes is how often a fault of a suite is owed over runs; 0 when nothing is claimed.
func Owes(suite, fault string) int {
	for _, c := range Owed() {
		if c.Suite == suite && c.Fault == fault {
			return c.Owed
		}
	}
	return 0
}
