// Quorum, maintenance, actors and the reconciler's findings, read at each scrape.

package obs

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/reconcile"
	"github.com/forgeyard/forgeyard/fsm"
)

// Observer is what NewHealth reads of a health.Observer; neither call waits.
type Observer interface {
	Local() health.Input
	LeaderChanges() uint64
}

type healthCollector struct {
	observer Observer

	quorum, configured, healthy, tolerance, changes, maintenance, postgres *prometheus.Desc
}

// NewHealth collects the verdict of this node alone: it asks no other one. So
// the number of healthy voters is missing where only the leader could tell.
func NewHealth(o Observer) prometheus.Collector {
	return &healthCollector{
		observer:    o,
		quorum:      desc("cluster_quorum_health", "The state of consensus as this node sees it: 1 for the state that holds.", "state"),
		configured:  desc("quorum_voters_configured", "Voters of the committed configuration."),
		healthy:     desc("quorum_voters_healthy", "Voters in contact and caught up; missing where this node cannot tell."),
		tolerance:   desc("quorum_failure_tolerance", "Healthy voters that may still fail; missing where this node cannot tell."),
		changes:     desc("raft_leader_changes_total", "Changes of the leader that this process saw since its start."),
		maintenance: desc("maintenance_active", "The committed maintenance state: 1 for the state that holds.", "scope"),
		postgres:    desc("pg_up", "Whether this process could write to PostgreSQL at its last probe."),
	}
}

// Describe implements prometheus.Collector.
func (c *healthCollector) Describe(out chan<- *prometheus.Desc) {
	described(out, c.quorum, c.configured, c.healthy, c.tolerance, c.changes, c.maintenance, c.postgres)
}

// Collect implements prometheus.Collector.
func (c *healthCollector) Collect(out chan<- prometheus.Metric) {
	in := c.observer.Local()
	s, status := scrape(out), health.Build(in)
	q := status.Quorum
	stateset(s, c.quorum, q.Health, health.QuorumHealthy, health.QuorumDegraded, health.QuorumLost, health.QuorumUnknown)
	s.gauge(c.configured, float64(q.VotersTotal))
	if q.VotersHealthy >= 0 {
		s.gauge(c.healthy, float64(q.VotersHealthy))
	}
	if q.CanLose >= 0 {
		s.gauge(c.tolerance, float64(q.CanLose))
	}
	s.counter(c.changes, float64(c.observer.LeaderChanges()))
	for m := fsm.Normal; m <= fsm.FullMaintenance; m++ {
		s.flag(c.maintenance, in.View.Maintenance == m, m.String())
	}
	s.flag(c.postgres, in.Own.PGWritable)
}

// ActorSample is what one role's actors are up to; Role is empty for those of no role.
type ActorSample struct {
	Role     string
	Depth    int64 // queued messages
	Restarts int   // of the actors and loops that live now
}

type actorCollector struct {
	read            func() []ActorSample
	depth, restarts *prometheus.Desc
}

// NewActors collects the mailboxes and restarts, summed by role.
func NewActors(read func() []ActorSample) prometheus.Collector {
	return &actorCollector{
		read:     read,
		depth:    desc("actor_mailbox_depth", "Messages queued at the actors of a role; the role is empty for the supervisors.", "role"),
		restarts: desc("actor_restarts", "Restarts of the actors and loops of a role that live now.", "role"),
	}
}

// Describe implements prometheus.Collector.
func (c *actorCollector) Describe(out chan<- *prometheus.Desc) { described(out, c.depth, c.restarts) }

// Collect implements prometheus.Collector.
func (c *actorCollector) Collect(out chan<- prometheus.Metric) {
	sums := map[string]ActorSample{}
	for _, a := range c.read() {
		sum := sums[a.Role]
		sums[a.Role] = ActorSample{Role: a.Role, Depth: sum.Depth + a.Depth, Restarts: sum.Restarts + a.Restarts}
	}
	for role, sum := range sums {
		scrape(out).gauge(c.depth, float64(sum.Depth), role)
		scrape(out).gauge(c.restarts, float64(sum.Restarts), role)
	}
}

type findingsCollector struct {
	last     func() (reconcile.Report, bool)
	findings *prometheus.Desc
	swept    *prometheus.Desc
}

// NewFindings collects what the reconciler of this process found last.
func NewFindings(last func() (reconcile.Report, bool)) prometheus.Collector {
	return &findingsCollector{
		last:     last,
		findings: desc("reconcile_findings", "Confirmed disagreements of the last sweep, by check; of the process that leads.", "check"),
		swept:    desc("reconcile_last_sweep_timestamp_seconds", "When the last sweep of this process ended."),
	}
}

// Describe implements prometheus.Collector.
func (c *findingsCollector) Describe(out chan<- *prometheus.Desc) {
	described(out, c.findings, c.swept)
}

// Collect implements prometheus.Collector.
func (c *findingsCollector) Collect(out chan<- prometheus.Metric) {
	report, ok := c.last()
	if !ok {
		return
	}
	count := map[reconcile.Check]int{}
	for _, f := range report.Findings {
		if f.Confirmed {
			count[f.Check]++
		}
	}
	for _, check := range reconcile.Checks() {
		scrape(out).gauge(c.findings, float64(count[check]), string(check))
	}
	scrape(out).gauge(c.swept, float64(report.At.UnixMilli())/1000)
}
