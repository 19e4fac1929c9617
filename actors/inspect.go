// Introspection: every living actor and loop as a snapshot, and GET /v1/cluster/actors.

package actors

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/obs"
	"github.com/forgeyard/forgeyard/fsm"
)

// ActorInfo describes one living actor or loop. It names a guard's state, never the guard.
type ActorInfo struct {
	Path       string             `json:"path"`
	Parent     string             `json:"parent,omitempty"`
	Kind       Kind               `json:"kind"`
	State      string             `json:"state"` // running or stopping
	Role       fsm.Role           `json:"role,omitzero"`
	Epoch      fsm.Epoch          `json:"epoch,omitzero"` // of a role; the term of a coordination leader is in its path
	GuardState cluster.GuardState `json:"guard_state,omitzero"`
	// MailboxDepth counts queued messages, without the one being handled.
	MailboxDepth int64 `json:"mailbox_depth"`
	// OldestMessageAge is the age of the oldest message queued or being handled, in nanoseconds.
	OldestMessageAge time.Duration `json:"oldest_message_age_ns"`
	Messages         uint64        `json:"messages"`
	Restarts         int           `json:"restarts"` // of the entry, or for a role supervisor of its trees
	LastFailure      string        `json:"last_failure,omitempty"`
	StartedAt        time.Time     `json:"started_at"`
	LastScan         Scan          `json:"last_scan,omitzero"`
}

// Scan is what a role's reconciliation found.
type Scan struct {
	At     time.Time `json:"at"`
	Result string    `json:"result"`
}

// Forest is the answer of GET /v1/cluster/actors.
type Forest struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	ObservedAt  time.Time         `json:"observed_at"`
	Node        fsm.NodeID        `json:"node"`
	NodeName    string            `json:"node_name"` // its id when it has none
	Incarnation fsm.IncarnationID `json:"incarnation"`
	Actors      []ActorInfo       `json:"actors"` // the root first, parents before children
	DeadLetters uint64            `json:"dead_letters"`
	Unhandled   uint64            `json:"unhandled"`
}

// Tree returns every living actor and loop, the root first and parents before
// their children. It reads counters only and never asks an actor, so a stuck
// actor does not delay it.
func (s *System) Tree() []ActorInfo {
	now := s.cfg.Now()
	records := s.registry.all()
	slices.SortFunc(records, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.kind.rank(), b.kind.rank()), cmp.Compare(a.path, b.path))
	})
	infos := make([]ActorInfo, len(records))
	for i, r := range records {
		infos[i] = r.info(now)
	}
	return infos
}

// rank puts the two whose names are not part of their children's paths first.
func (k Kind) rank() int {
	switch k {
	case KindRoot:
		return 0
	case KindCoordination:
		return 1
	}
	return 2
}

func (r *record) info(now time.Time) ActorInfo {
	info := ActorInfo{
		Path: r.path, Parent: r.parent, Kind: r.kind, State: "running", Role: r.role, Epoch: r.epoch,
		MailboxDepth: r.queued.Load(), Messages: r.messages.Load(),
	}
	if r.guard != nil {
		info.GuardState = r.guard()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leaving {
		info.State = "stopping"
	}
	if len(r.waiting) > 0 {
		info.OldestMessageAge = now.Sub(r.waiting[0])
	}
	info.Restarts, info.LastFailure, info.StartedAt, info.LastScan = r.restarts, r.failure, r.started, r.scan
	return info
}

// depth is the distance from the root, for ?depth=.
func (i ActorInfo) depth() int {
	switch i.Kind {
	case KindRoot:
		return 0
	case KindCoordination:
		return 1
	case KindRole, KindLeader:
		return 3
	case KindLoop:
		return 4
	}
	return 2
}

// Routes returns GET /v1/cluster/actors. `?depth=N` leaves out what is more
// than N levels below the root, `?path=P` all but P and what is under it.
func Routes(s *System) []access.Route {
	return []access.Route{{
		Method: http.MethodGet, Pattern: "/v1/cluster/actors", Permission: access.ClusterRead,
		Handler: http.HandlerFunc(s.serveActors),
	}}
}

func (s *System) serveActors(w http.ResponseWriter, r *http.Request) {
	deepest := -1
	if q := r.URL.Query().Get("depth"); q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 0 {
			access.WriteError(w, access.ErrBadRequest.Because("depth %q is not a number of levels", q))
			return
		}
		deepest = n
	}
	under := r.URL.Query().Get("path")
	infos := slices.DeleteFunc(s.Tree(), func(i ActorInfo) bool {
		outside := under != "" && i.Path != under && !strings.HasPrefix(i.Path, under+"/")
		return outside || (deepest >= 0 && i.depth() > deepest)
	})
	access.WriteJSON(w, http.StatusOK, Forest{
		APIVersion: "forgeyard.dev/v1", Kind: "ActorTree", ObservedAt: s.cfg.Now(),
		Node: s.self.Node, NodeName: s.name(), Incarnation: s.self.Incarnation,
		Actors: infos, DeadLetters: s.DeadLetters(), Unhandled: s.Unhandled(),
	})
}

// name is what this node is called in the committed view, else by itself.
func (s *System) name() string {
	m, _ := s.cfg.Backend.View().Member(s.self.Node)
	return cmp.Or(m.Name, s.self.Name, s.self.Node.String())
}

// Collector is the figures of the actors, to be registered once a process.
func (s *System) Collector() prometheus.Collector {
	return obs.NewActors(func() []obs.ActorSample {
		var samples []obs.ActorSample
		for _, i := range s.Tree() {
			sample := obs.ActorSample{Depth: i.MailboxDepth, Restarts: i.Restarts}
			if i.Role != 0 {
				sample.Role = i.Role.String()
			}
			samples = append(samples, sample)
		}
		return samples
	})
}
