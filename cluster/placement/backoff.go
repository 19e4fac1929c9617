// Backoff: what one plan must know of the plans before it.

package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Bounds of the back-off of one role on one node.
const (
	BackoffMin   = time.Second
	BackoffMax   = 60 * time.Second
	BackoffReset = 60 * time.Second // without a failure after the back-off ended, it is forgotten
)

// Backoff is the planner's memory within one leadership: after a role was given
// up or vacated on a node, the node does not get it again for a time that
// doubles with every failure, so a poison row cannot make a role ping-pong.
// The zero value remembers nothing. A Backoff is immutable.
type Backoff struct {
	leadership fsm.Epoch // the memory is void under another one
	failures   map[place]failure
	released   map[fsm.Role]fsm.Epoch // newest release that has been counted
	activity   map[fsm.Role]activity
	noPostgres map[fsm.NodeID]time.Time // since when a node reports no writable PostgreSQL
}

type place struct {
	role fsm.Role
	node fsm.NodeID
}

type failure struct {
	count int
	until time.Time
}

// activity is when a role was last seen active with its owner, or first seen
// there. A renewed grant does not start it anew: an owner that renews for ever
// without becoming active loses the role like any other.
type activity struct {
	owner fsm.IncarnationID
	last  time.Time
}

// Delay is one back-off that runs: the node does not get the role before Until.
type Delay struct {
	Role     fsm.Role
	Node     fsm.NodeID
	Failures int
	Until    time.Time
}

// Delays returns the back-offs that run at now, by role and node.
func (b Backoff) Delays(now time.Time) []Delay {
	var out []Delay
	for p, f := range b.failures {
		if now.Before(f.until) {
			out = append(out, Delay{Role: p.role, Node: p.node, Failures: f.count, Until: f.until})
		}
	}
	slices.SortFunc(out, func(x, y Delay) int {
		return cmp.Or(cmp.Compare(x.Role, y.Role), x.Node.Compare(y.Node))
	})
	return out
}

func (b Backoff) blocks(role fsm.Role, n fsm.NodeID, now time.Time) bool {
	return now.Before(b.failures[place{role, n}].until)
}

// inactive is how long the role has not been active with its current owner.
func (b Backoff) inactive(role fsm.Role, now time.Time) time.Duration {
	return now.Sub(b.activity[role].last)
}

// withoutPostgres is how long the node has reported no writable PostgreSQL.
func (b Backoff) withoutPostgres(n fsm.NodeID, now time.Time) time.Duration {
	since, ok := b.noPostgres[n]
	if !ok {
		return 0
	}
	return now.Sub(since)
}

// observe returns the memory after the planner's input has been seen.
func (b Backoff) observe(p *planner) Backoff {
	// Releases from before this leadership are no failures of anything it decided.
	first := b.leadership != p.View.LeaderEpoch.Epoch
	if first {
		b = Backoff{leadership: p.View.LeaderEpoch.Epoch}
	}
	next := Backoff{
		leadership: b.leadership,
		failures:   make(map[place]failure),
		released:   make(map[fsm.Role]fsm.Epoch),
		activity:   make(map[fsm.Role]activity),
		noPostgres: make(map[fsm.NodeID]time.Time),
	}
	maps.Copy(next.failures, b.failures)
	maps.DeleteFunc(next.failures, func(_ place, f failure) bool { return p.Now.Sub(f.until) >= BackoffReset })
	for _, x := range p.View.Releases {
		next.released[x.Role] = x.Epoch
		if !first && x.Epoch > b.released[x.Role] {
			next.fail(place{x.Role, x.Node}, p.Now)
		}
	}
	for _, g := range p.View.Roles {
		next.activity[g.Role] = b.activity[g.Role].observe(g, p)
	}
	for n, r := range p.reports {
		if r.PGWritable {
			continue
		}
		since, ok := b.noPostgres[n]
		if !ok {
			since = p.Now
		}
		next.noPostgres[n] = since
	}
	return next
}

func (b Backoff) fail(at place, now time.Time) {
	f := b.failures[at]
	f.count++
	delay := BackoffMax
	if f.count <= 6 { // 1, 2, 4, 8, 16, 32 s
		delay = BackoffMin << (f.count - 1)
	}
	f.until = now.Add(delay)
	b.failures[at] = f
}

func (a activity) observe(g fsm.RoleGrant, p *planner) activity {
	if a.owner != g.Incarnation || a.last.IsZero() {
		return activity{owner: g.Incarnation, last: p.Now}
	}
	r, ok := p.reports[g.Owner]
	if !ok || r.Incarnation != g.Incarnation {
		return a
	}
	for _, s := range r.Roles {
		if s.Role == g.Role && s.Epoch == g.Epoch && s.State == cluster.GuardActive {
			a.last = p.Now
		}
	}
	return a
}
