// Figures for monitoring, from the owner's memory: a scrape asks the database nothing.

package scheduler

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// queuesShown bounds the label values of the queue figures; the queues beyond are summed.
const queuesShown = 100

// otherQueues is the label of what is summed; no queue can have the name.
const otherQueues = "(others)"

// meter is what the scheduler counts. The figures of the queues are known to
// the daemon that owns the role, and to no other.
type meter struct {
	leases      prometheus.Counter
	expirations prometheus.Counter
	sizes       prometheus.Histogram
	durations   prometheus.Histogram
	pruned      *prometheus.CounterVec

	survey atomic.Pointer[owned]

	depth, oldest, active *prometheus.Desc
}

func newMeter() *meter {
	const space, sub = "forgeyard", "scheduler"
	return &meter{
		leases:      prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: sub, Name: "leases_total", Help: "Leases made by this daemon."}),
		expirations: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Subsystem: sub, Name: "lease_expirations_total", Help: "Leases that this daemon ended because their time was over."}),
		sizes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: space, Subsystem: sub, Name: "batch_leases", Help: "Leases made in one transaction.", Buckets: prometheus.ExponentialBuckets(1, 4, 6),
		}),
		durations: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: space, Subsystem: sub, Name: "batch_seconds", Help: "Time of one transaction that made leases.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 12),
		}),
		pruned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: space, Subsystem: sub, Name: "pruned_rows_total", Help: "Rows that retention removed, by table.",
		}, []string{"table"}),
		depth:  prometheus.NewDesc("forgeyard_scheduler_queue_depth", "Jobs that wait for an agent, by queue.", []string{"queue"}, nil),
		oldest: prometheus.NewDesc("forgeyard_scheduler_queue_oldest_wait_seconds", "How long the job that waits longest has waited, by queue.", []string{"queue"}, nil),
		active: prometheus.NewDesc("forgeyard_scheduler_active_leases", "Leases that are active.", nil, nil),
	}
}

func (m *meter) batch(n int, took time.Duration) {
	m.leases.Add(float64(n))
	m.sizes.Observe(float64(n))
	m.durations.Observe(took.Seconds())
}

func (m *meter) expired(n int64) { m.expirations.Add(float64(n)) }

// Collectors returns the scheduler's figures, to be registered once a process.
func (s *Scheduler) Collectors() []prometheus.Collector {
	m := s.meter
	return []prometheus.Collector{m.leases, m.expirations, m.sizes, m.durations, m.pruned, queueFigures{m}}
}

// queueFigures collects what the last survey found.
type queueFigures struct{ *meter }

func (f queueFigures) Describe(out chan<- *prometheus.Desc) {
	out <- f.depth
	out <- f.oldest
	out <- f.active
}

func (f queueFigures) Collect(out chan<- prometheus.Metric) {
	s := f.survey.Load()
	if s == nil || s.guard.CheckActive() != nil {
		return // another daemon shows them
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(f.active, float64(s.Active))
	var others QueueDepth
	for i, q := range s.Queues {
		if i < queuesShown {
			gauge(f.depth, float64(q.Depth), q.Queue)
			gauge(f.oldest, time.Duration(q.OldestWait).Seconds(), q.Queue)
			continue
		}
		others.Depth += q.Depth
		others.OldestWait = max(others.OldestWait, q.OldestWait)
	}
	if r := s.MoreQueues; r != nil {
		others.Depth += r.Depth
		others.OldestWait = max(others.OldestWait, r.OldestWait)
	}
	if others.Depth > 0 {
		gauge(f.depth, float64(others.Depth), otherQueues)
		gauge(f.oldest, time.Duration(others.OldestWait).Seconds(), otherQueues)
	}
}
