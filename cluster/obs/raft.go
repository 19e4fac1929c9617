// Consensus and roles, read from the backend and the Service at each scrape.

package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Coordination is what NewRaft and NewRoles read of a cluster.Backend.
type Coordination interface {
	Self() cluster.Identity
	View() cluster.View
	Leadership() (cluster.Leadership, bool)
	Peers() []cluster.Peer
}

// committer is a backend that knows how far the log is committed.
type committer interface{ CommitIndex() uint64 }

// raftState is this node's part in consensus.
type raftState string

const (
	stateNone         raftState = "none"         // no leader is known
	stateFollower     raftState = "follower"     // another node leads
	stateEstablishing raftState = "establishing" // it leads, its barrier has not passed
	stateLeader       raftState = "leader"
)

type raftCollector struct {
	backend Coordination
	now     func() time.Time

	state, hasLeader, term, applied, committed, age, lag, contact *prometheus.Desc
}

// NewRaft collects the state of consensus as this node sees it. A nil clock is time.Now.
func NewRaft(b Coordination, now func() time.Time) prometheus.Collector {
	if now == nil {
		now = time.Now
	}
	return &raftCollector{
		backend: b, now: now,
		state:     desc("raft_state", "This node's part in consensus: 1 for the state that holds.", "state"),
		hasLeader: desc("raft_has_leader", "Whether this node knows a leader."),
		term:      desc("raft_term", "The current Raft term."),
		applied:   desc("raft_applied_index", "The last log entry that this node applied."),
		committed: desc("raft_commit_index", "The last log entry that this node knows to be committed."),
		age:       desc("view_age_seconds", "How long ago this node's view was last proved current; guards refuse above half a second."),
		lag:       desc("raft_replication_lag_entries", "Entries that a member is behind the leader; shown by the leader.", "peer"),
		contact:   desc("raft_last_contact_seconds", "How long ago a member last answered; shown by the leader.", "peer"),
	}
}

// Describe implements prometheus.Collector.
func (c *raftCollector) Describe(out chan<- *prometheus.Desc) {
	described(out, c.state, c.hasLeader, c.term, c.applied, c.committed, c.age, c.lag, c.contact)
}

// Collect implements prometheus.Collector.
func (c *raftCollector) Collect(out chan<- prometheus.Metric) {
	s, v, now := scrape(out), c.backend.View(), c.now()
	_, leads := c.backend.Leadership()
	state := stateFollower
	switch {
	case leads:
		state = stateLeader
	case v.KnownLeader.IsZero():
		state = stateNone
	case v.KnownLeader == c.backend.Self().Node:
		state = stateEstablishing
	}
	stateset(s, c.state, state, stateNone, stateFollower, stateEstablishing, stateLeader)
	s.flag(c.hasLeader, !v.KnownLeader.IsZero())
	s.gauge(c.term, float64(max(v.RaftTerm, v.Term)))
	s.gauge(c.applied, float64(v.Index))
	if b, ok := c.backend.(committer); ok {
		s.gauge(c.committed, float64(b.CommitIndex()))
	}
	if !v.Confirmed.IsZero() {
		s.gauge(c.age, max(0, v.Age(now).Seconds()))
	}
	for _, p := range c.backend.Peers() {
		name, ok := nameOf(v, p.Node)
		if !ok {
			continue // removed since, or two members share the label: one line each or none
		}
		s.gauge(c.lag, float64(v.Index-min(v.Index, p.MatchIndex)), name)
		if !p.LastContact.IsZero() {
			s.gauge(c.contact, max(0, now.Sub(p.LastContact).Seconds()), name)
		}
	}
}

// nameOf is the label of a member; false unless it names exactly that member.
func nameOf(v cluster.View, n fsm.NodeID) (string, bool) {
	m, ok := v.Member(n)
	for _, o := range v.Members {
		ok = ok && (o.Node == n || o.Name != m.Name)
	}
	return m.Name, ok && m.Name != ""
}

type roleCollector struct {
	view   func() cluster.View
	status func() []cluster.RoleStatus

	active, epoch, scheduler *prometheus.Desc
}

// NewRoles collects which roles this process runs, by the Service's Status, and
// the committed epoch of each.
func NewRoles(b Coordination, status func() []cluster.RoleStatus) prometheus.Collector {
	return &roleCollector{
		view: b.View, status: status,
		active:    desc("role_active", "Whether the role is active in this process.", "role"),
		epoch:     desc("role_epoch", "The committed epoch of a role's newest grant.", "role"),
		scheduler: desc("scheduler_epoch", "The committed epoch of SchedulerLeader's newest grant."),
	}
}

// Describe implements prometheus.Collector.
func (c *roleCollector) Describe(out chan<- *prometheus.Desc) {
	described(out, c.active, c.epoch, c.scheduler)
}

// Collect implements prometheus.Collector.
func (c *roleCollector) Collect(out chan<- prometheus.Metric) {
	s, v := scrape(out), c.view()
	active := map[fsm.Role]bool{}
	for _, r := range c.status() {
		active[r.Role] = r.State == cluster.GuardActive
	}
	for _, r := range fsm.Roles() {
		s.flag(c.active, active[r], r.String())
		s.gauge(c.epoch, float64(v.Role(r).Epoch), r.String())
	}
	s.gauge(c.scheduler, float64(v.Role(fsm.SchedulerLeader).Epoch))
}
