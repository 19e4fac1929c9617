// Figures of a daemon's side of the job plane, for /metrics.

package runner

import "github.com/prometheus/client_golang/prometheus"

// meter counts what the agents of one daemon do.
type meter struct {
	completions *prometheus.CounterVec
}

func newMeter() *meter {
	return &meter{completions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forgeyard_completions_total", Help: "Attempts that ended through this daemon, by outcome.",
	}, []string{"outcome"})}
}

func (m *meter) ends(of map[Outcome]int) {
	for o, n := range of {
		m.completions.WithLabelValues(string(o)).Add(float64(n))
	}
}

// Collectors returns the figures of the agents linked to this daemon.
func (s *Sessions) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		s.meter.completions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forgeyard_agents_linked", Help: "Agents whose link this daemon holds.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.live))
		}),
	}
}

// transfers counts the transfer streams of one daemon.
type transfers struct {
	active   *prometheus.GaugeVec
	total    *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	logBytes prometheus.Counter
}

func newTransfers() *transfers {
	return &transfers{
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "forgeyard_transfers", Help: "Transfer streams of agents that are open at this daemon, by kind.",
		}, []string{"kind"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forgeyard_transfers_total", Help: "Transfer streams that ended at this daemon, by kind and result.",
		}, []string{"kind", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forgeyard_transfer_bytes_total", Help: "Bytes of sources and artifacts that passed through this daemon, by kind.",
		}, []string{"kind"}),
		logBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forgeyard_log_bytes_total", Help: "Bytes of job output that this daemon stored, before compression.",
		}),
	}
}

func (t *transfers) collectors() []prometheus.Collector {
	return []prometheus.Collector{t.active, t.total, t.bytes, t.logBytes}
}
