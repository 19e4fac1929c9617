// The plan of one lease batch: a pure function from queued jobs and free agents to picks.

package scheduler

import "slices"

// job is a queued job, as far as placing it needs.
type job struct {
	id     string
	labels []string // an agent must carry all of them
}

// agent is an agent with free capacity.
type agent struct {
	id     string
	labels []string
	free   int
}

// pick gives a job to an agent.
type pick struct {
	job, agent string
}

// plan places the jobs in the order given, each on the agent with the most free
// capacity that carries its labels (the smaller id breaks a tie). A job that
// fits nowhere is passed over and holds up nobody behind it.
func plan(jobs []job, agents []agent) []pick {
	free := slices.Clone(agents)
	var picks []pick
	for _, j := range jobs {
		best := -1
		for i, a := range free {
			if a.free > 0 && carries(a.labels, j.labels) &&
				(best < 0 || a.free > free[best].free || a.free == free[best].free && a.id < free[best].id) {
				best = i
			}
		}
		if best >= 0 {
			free[best].free--
			picks = append(picks, pick{job: j.id, agent: free[best].id})
		}
	}
	return picks
}

func carries(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}
