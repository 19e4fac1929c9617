// Guards: how often each role's guard was revoked and why, and how long a grant takes to become active.

package obs

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
)

// Guards is a trace.Tracer that counts what the Service traces and passes it
// on, and a prometheus.Collector.
type Guards struct {
	next       trace.Tracer
	revoked    *prometheus.CounterVec
	transition *prometheus.HistogramVec

	mu      sync.Mutex
	granted map[fsm.Role]trace.Event // the newest grant of each role, until it is active or revoked
}

// NewGuards makes one in front of another tracer; nil: there is none behind.
func NewGuards(next trace.Tracer) *Guards {
	if next == nil {
		next = trace.Discard
	}
	return &Guards{
		next: next,
		revoked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "guard_revocations_total", Help: "Guards that this process lost, by role and cause.",
		}, []string{"role", "cause"}),
		transition: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "role_transition_duration_seconds",
			Help:    "From the grant of a role to this process until its loops may run.",
			Buckets: []float64{.005, .02, .1, .25, .5, 1, 2, 4, 8, 16},
		}, []string{"role"}),
		granted: map[fsm.Role]trace.Event{},
	}
}

// Trace implements trace.Tracer.
func (g *Guards) Trace(e trace.Event) {
	g.next.Trace(e)
	switch e.Kind {
	case trace.Grant:
		g.mu.Lock()
		g.granted[e.Role] = e
		g.mu.Unlock()
	case trace.Active:
		if began, ok := g.settle(e); ok && e.Mono >= began.Mono {
			g.transition.WithLabelValues(e.Role.String()).Observe(float64(e.Mono-began.Mono) / 1e9)
		}
	case trace.Inactive:
		g.settle(e)
		g.revoked.WithLabelValues(e.Role.String(), e.Detail).Inc()
	}
}

// settle takes the grant that the event is about.
func (g *Guards) settle(e trace.Event) (trace.Event, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	began, ok := g.granted[e.Role]
	if !ok || began.Epoch != e.Epoch {
		return trace.Event{}, false
	}
	delete(g.granted, e.Role)
	return began, true
}

// Describe implements prometheus.Collector.
func (g *Guards) Describe(out chan<- *prometheus.Desc) {
	g.revoked.Describe(out)
	g.transition.Describe(out)
}

// Collect implements prometheus.Collector.
func (g *Guards) Collect(out chan<- prometheus.Metric) {
	g.revoked.Collect(out)
	g.transition.Collect(out)
}
