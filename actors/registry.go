// The registry of living actors and loops: what the introspection shows, fed by the middleware and the mailboxes.

package actors

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Kind says what an entry of the tree is.
type Kind string

// The kinds of entries.
const (
	KindRoot             Kind = "root"
	KindCoordination     Kind = "coordination-supervisor"
	KindWatcher          Kind = "leadership-watcher"
	KindLeaderSupervisor Kind = "leader-supervisor"
	KindLeader           Kind = "coordination-leader"
	KindReconciler       Kind = "cluster-reconciler"
	KindRoleSupervisor   Kind = "role-supervisor"
	KindRole             Kind = "role"
	KindLoop             Kind = "loop"
)

// Paths are stable names. Everything under the coordination supervisor is named
// without it, so the tree of a role reads roles/SchedulerLeader/17.
const (
	pathRoot         = "root"
	pathCoordination = "coordination"
	pathWatcher      = "watcher"
	pathLeader       = "leader"
	pathReconciler   = "reconciler"
)

func rolePath(r fsm.Role) string { return "roles/" + r.String() }

func treePath(r fsm.Role, e fsm.Epoch) string { return fmt.Sprintf("%s/%d", rolePath(r), e) }

// processID is the protoactor id of a path.
func processID(path string) string {
	switch path {
	case pathRoot:
		return pathRoot
	case pathCoordination:
		return pathRoot + "/" + pathCoordination
	}
	return pathRoot + "/" + pathCoordination + "/" + path
}

// maxFailure bounds the text of a last failure, in bytes.
const maxFailure = 256

// record is one living actor or loop. The fields above mu never change once the
// actor runs.
type record struct {
	path   string
	parent string
	kind   Kind
	role   fsm.Role
	epoch  fsm.Epoch
	guard  func() cluster.GuardState // nil: the entry has none
	bound  int                       // most pieces of work queued at a time; 0: takes none

	onStopping func() // before the actor handles Stopping or Restarting, even if that panics
	onStopped  func() // after the actor's last message

	ticking  atomic.Bool  // a tick is queued: more would say nothing new
	crash    atomic.Int32 // at how many of the next messages to panic (chaos)
	done     atomic.Bool  // Stopped was handled
	queued   atomic.Int64
	messages atomic.Uint64

	mu       sync.Mutex
	waiting  []time.Time // when the queued messages and the one being handled were posted
	leaving  bool        // Stopping or Restarting was seen
	started  time.Time
	restarts int
	failure  string
	scan     Scan
}

// failed notes a failure; restarted says that it led to a new start.
func (r *record) failed(reason any, restarted bool) {
	text := strings.ToValidUTF8(fmt.Sprint(reason), "?")
	if len(text) > maxFailure {
		text = strings.ToValidUTF8(text[:maxFailure], "") + "…"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = text
	if restarted {
		r.restarts++
	}
}

func (r *record) scanned(at time.Time, result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scan = Scan{At: at, Result: result}
}

func (r *record) isLeaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving
}

// registry holds the living entries by path.
type registry struct {
	mu      sync.Mutex
	entries map[string]*record
}

func (g *registry) add(r *record, now time.Time) {
	r.mu.Lock()
	r.started = now
	r.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entries == nil {
		g.entries = map[string]*record{}
	}
	g.entries[r.path] = r
}

// remove takes the entry out; a newer entry of the same path stays.
func (g *registry) remove(r *record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entries[r.path] == r {
		delete(g.entries, r.path)
	}
}

func (g *registry) get(path string) (*record, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.entries[path]
	return r, ok
}

func (g *registry) all() []*record {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*record, 0, len(g.entries))
	for _, r := range g.entries {
		all = append(all, r)
	}
	return all
}

func (g *registry) paths() []string {
	var paths []string
	for _, r := range g.all() {
		paths = append(paths, r.path)
	}
	slices.Sort(paths)
	return paths
}
