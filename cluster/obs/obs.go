// Figures and spans of coordination: what they are called, and the helpers that make them.

// Package obs turns what coordination already knows into Prometheus figures and
// trace spans (§250–§252). Collectors read the same calls as everybody else at
// each scrape and keep no state of their own; what only passes by (fenced
// operations, revocations, proposals) is counted where it passes. Nothing here
// registers itself. Labels are closed sets or members' names, never ids (§251).
package obs

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "forgeyard"

// The spans of coordination (§252).
const (
	SpanPropose      = "coordination.propose"
	SpanLeaderChange = "coordination.leader_change"
	SpanMembership   = "coordination.membership"
	SpanFence        = "coordination.fence"
)

// Span is one ended operation. Ids and epochs are attributes, never part of the name.
type Span struct {
	Name  string
	Began time.Time
	Took  time.Duration
	Attrs []slog.Attr
	Err   error // nil: it succeeded
}

// Spans takes ended spans; an exporter is one. It must not block and is called concurrently.
type Spans interface {
	Span(ctx context.Context, s Span)
}

// NoSpans takes none.
var NoSpans Spans = noSpans{}

type noSpans struct{}

func (noSpans) Span(context.Context, Span) {}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// scrape is one collection under way.
type scrape chan<- prometheus.Metric

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// flag writes 1 or 0.
func (s scrape) flag(d *prometheus.Desc, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	s.gauge(d, v, labels...)
}

// stateset writes 1 for the state that holds and 0 for each other one.
func stateset[T ~string](s scrape, d *prometheus.Desc, now T, all ...T) {
	for _, state := range all {
		s.flag(d, state == now, string(state))
	}
}

// described sends the descriptions of a collector.
func described(out chan<- *prometheus.Desc, all ...*prometheus.Desc) {
	for _, d := range all {
		out <- d
	}
}
