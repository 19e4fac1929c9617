// Fenced operations: each is counted, traced and logged once, with its role and epochs (§250, §252).

package obs

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// FencedOperation is one operation under a fence and how it ended. Kind and
// Outcome are of closed sets.
type FencedOperation struct {
	Kind       string // write, assert or raise
	Role       fsm.Role
	Generation fsm.Generation
	Epoch      fsm.Epoch
	Began      time.Time
	Took       time.Duration
	Outcome    string
	Err        error // nil when it was applied
}

// Fences counts fenced operations. It is a prometheus.Collector.
type Fences struct {
	spans      Spans
	log        *slog.Logger
	operations *prometheus.CounterVec
	rejected   *prometheus.CounterVec
}

// NewFences makes one; nil spans and a nil logger take nothing. What costs a
// role its epoch is logged by whoever loses it; here every operation is a line
// of level debug.
func NewFences(spans Spans, log *slog.Logger) *Fences {
	if spans == nil {
		spans = NoSpans
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Fences{
		spans: spans, log: log,
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "coordination_fenced_operations_total",
			Help: "Operations under a role's fence that ended in this process, by what they were and how they ended.",
		}, []string{"role", "operation", "outcome"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "fence_rejected_total",
			Help: "Operations that were refused because their epoch may not write, by the guard or by the database.",
		}, []string{"role"}),
	}
}

// Observe notes one operation; whoever performs it calls this once, when its outcome is known.
func (f *Fences) Observe(ctx context.Context, op FencedOperation) {
	role := op.Role.String()
	f.operations.WithLabelValues(role, op.Kind, op.Outcome).Inc()
	if op.Err != nil && cluster.KindOf(op.Err) == cluster.Fenced {
		f.rejected.WithLabelValues(role).Inc()
	}
	attrs := []slog.Attr{
		slog.String("operation", op.Kind), slog.String("role", role), slog.Uint64("generation", uint64(op.Generation)),
		slog.Uint64("epoch", uint64(op.Epoch)), slog.String("outcome", op.Outcome),
	}
	f.spans.Span(ctx, Span{Name: SpanFence, Began: op.Began, Took: op.Took, Attrs: attrs, Err: op.Err})
	if op.Err != nil {
		attrs = append(attrs, slog.Any("err", op.Err))
	}
	f.log.LogAttrs(ctx, slog.LevelDebug, "fenced operation", attrs...)
}

// Describe implements prometheus.Collector.
func (f *Fences) Describe(out chan<- *prometheus.Desc) {
	f.operations.Describe(out)
	f.rejected.Describe(out)
}

// Collect implements prometheus.Collector.
func (f *Fences) Collect(out chan<- prometheus.Metric) {
	f.operations.Collect(out)
	f.rejected.Collect(out)
}
