// Whose turn it is: the fairness between queues, derived from the last leases and nothing else.

package scheduler

// turnsKept is how many of the last leases count. A queue that is not among
// them is as good as one that was never served.
const turnsKept = 4096

// turns says for each queue how long ago, counted in leases, it was last
// served. It follows from the last turnsKept leases in the order of their making, so
// that a new leader that reads them knows exactly what the old one knew (§84).
type turns struct {
	made   uint64 // leases
	lastOf map[string]uint64
}

func newTurns() turns { return turns{lastOf: map[string]uint64{}} }

// last is the turn of the queue's last lease; 0 when it was not among those that count.
func (t turns) last(queue string) uint64 {
	n, ok := t.lastOf[queue]
	if !ok || t.made-n >= turnsKept {
		return 0
	}
	return n
}

// served notes a lease.
func (t *turns) served(queue string) {
	t.made++
	t.lastOf[queue] = t.made
	if len(t.lastOf) > 2*turnsKept {
		for q := range t.lastOf {
			if t.last(q) == 0 {
				delete(t.lastOf, q)
			}
		}
	}
}
