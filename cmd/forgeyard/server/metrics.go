// Metrics: the figures of this process under /metrics, in a registry of its own.

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Metrics is the registry of a daemon. Labels hold route patterns, methods and
// status codes only: their number is bounded by this build, not by its callers.
type Metrics struct {
	registry *prometheus.Registry
	bounded  []*boundedCollector
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	streams  prometheus.Gauge
}

// NewMetrics makes a registry with the figures of the process, the build and
// the API, and further collectors, each bounded by CollectTimeout. Two
// collectors with the same figure are an error.
func NewMetrics(v Version, log *slog.Logger, more ...prometheus.Collector) (*Metrics, error) {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forgeyard_http_requests_total", Help: "Requests answered, by route pattern, method and status.",
		}, []string{"route", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forgeyard_http_request_duration_seconds", Help: "Time to answer a request; streams are not counted.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10},
		}, []string{"route", "method"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "forgeyard_sse_clients", Help: "Clients that follow a stream of events on this daemon.",
		}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "forgeyard_build_info", Help: "Always 1; the labels tell the build.",
	}, []string{"version", "commit", "go"})
	build.WithLabelValues(v.Version, v.Commit, v.Go).Set(1)
	late := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "forgeyard_metrics_incomplete_total", Help: "Collectors that a scrape left out because they did not answer in time or failed.",
	})
	all := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, m.requests, m.duration, m.streams, late,
	}
	for _, c := range more {
		b := &boundedCollector{inner: c, late: late, log: log}
		m.bounded = append(m.bounded, b)
		all = append(all, b)
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return m, nil
}

// handler answers a scrape.
func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// observe counts the requests of a route.
func (m *Metrics) observe(route access.Route, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, method := time.Now(), route.Method
		if method == "" {
			method = "other" // of the caller's choice, so without a bound
		}
		out := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		panicked := true
		defer func() {
			if panicked {
				out.status = http.StatusInternalServerError
			}
			m.requests.WithLabelValues(route.Pattern, method, strconv.Itoa(out.status)).Inc()
			if !route.Stream {
				m.duration.WithLabelValues(route.Pattern, method).Observe(time.Since(begun).Seconds())
			}
		}()
		next.ServeHTTP(out, r)
		panicked = false
	})
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
	told   bool
}

// WriteHeader notes the first final status.
func (w *statusWriter) WriteHeader(status int) {
	if !w.told && status >= 200 {
		w.status, w.told = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.told = true
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// settle waits for collectors that a scrape left behind, until ctx ends.
func (m *Metrics) settle(ctx context.Context) error {
	for _, b := range m.bounded {
		if run := b.running(); run != nil {
			select {
			case <-run.ended:
			case <-ctx.Done():
				return fmt.Errorf("a collector of metrics does not end: %w", ctx.Err())
			}
		}
	}
	return nil
}
