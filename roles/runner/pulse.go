// Whether the work behind a heartbeat lives: what a link remembers of the work counters of its leases.

package runner

import "time"

// pulses remembers, for one link, since when and for how many heartbeats each
// lease has shown the same work. It belongs to the worker that handles the link's
// agent.
type pulses map[string]still

type still struct {
	work  uint64
	since time.Time
	beats int // in a row with this work
}

// beat takes the progress of a heartbeat and returns the leases whose work has
// stood still for StillBeats heartbeats and for at least the given time: their
// agent's link lives, and what should do the work does not. Work 0 is not counted.
func (p *pulses) beat(of []Progress, now time.Time, patience time.Duration) (stale map[string]bool) {
	next := make(pulses, len(of))
	for _, x := range of {
		s, known := (*p)[x.Lease]
		if known && s.work == x.Work {
			s.beats++
		} else {
			s = still{work: x.Work, since: now, beats: 1}
		}
		next[x.Lease] = s
		if x.Work != 0 && s.beats >= StillBeats && now.Sub(s.since) >= patience {
			if stale == nil {
				stale = map[string]bool{}
			}
			stale[x.Lease] = true
		}
	}
	*p = next
	return stale
}
