// A collector that cannot hold up a scrape: asked in its own goroutine, one at a time, and left out when it is late.

package server

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// CollectTimeout is how long a scrape waits for one collector: PostgreSQL being
// down must not hide the figures that tell so. Collectors are asked side by side.
const CollectTimeout = time.Second

type boundedCollector struct {
	inner prometheus.Collector
	late  prometheus.Counter
	log   *slog.Logger

	mu  sync.Mutex
	now *collection // the one that runs; nil when none does
}

// collection is one asking of the collector; metrics may be read once ended is closed.
type collection struct {
	ended   chan struct{}
	metrics []prometheus.Metric
	err     error
}

// Describe passes the descriptions through.
func (b *boundedCollector) Describe(ch chan<- *prometheus.Desc) { b.inner.Describe(ch) }

// Collect passes the figures on, or none when they are late. A collector that
// still works for an earlier scrape is waited for, not asked a second time.
func (b *boundedCollector) Collect(ch chan<- prometheus.Metric) {
	timer := time.NewTimer(CollectTimeout)
	defer timer.Stop()
	run := b.begin()
	select {
	case <-run.ended:
	case <-timer.C:
		b.late.Inc()
		return
	}
	if run.err != nil {
		b.late.Inc()
		b.log.Warn("a collector of metrics failed", "error", run.err)
	}
	for _, m := range run.metrics {
		ch <- m
	}
}

func (b *boundedCollector) running() *collection {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// begin joins the asking that runs or starts one. Metrics.settle waits for its goroutine.
func (b *boundedCollector) begin() *collection {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil {
		return b.now
	}
	run := &collection{ended: make(chan struct{})}
	b.now = run
	go func() {
		run.metrics, run.err = gather(b.inner)
		b.mu.Lock()
		b.now = nil
		b.mu.Unlock()
		close(run.ended)
	}()
	return run
}

// gather asks a collector and reads every value: a value that is computed when
// it is read would otherwise be computed by the scrape, without a bound.
func gather(c prometheus.Collector) (metrics []prometheus.Metric, err error) {
	ch, done := make(chan prometheus.Metric), make(chan struct{})
	go func() {
		defer close(done)
		for m := range ch {
			metrics = append(metrics, read(m))
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panicked: %v", r)
		}
		close(ch)
		<-done
	}()
	c.Collect(ch)
	return // not "metrics, nil": the reader is still at work
}

// value is a metric that was read.
type value struct {
	desc *prometheus.Desc
	text *dto.Metric
	err  error
}

func read(m prometheus.Metric) (v value) {
	v = value{desc: m.Desc(), text: &dto.Metric{}}
	defer func() {
		if r := recover(); r != nil {
			v.err = fmt.Errorf("panicked: %v", r)
		}
	}()
	v.err = m.Write(v.text)
	return v
}

// Desc and Write make a prometheus.Metric.
func (v value) Desc() *prometheus.Desc { return v.desc }

func (v value) Write(out *dto.Metric) error {
	if v.err != nil {
		return v.err
	}
	out.Label, out.Gauge, out.Counter, out.Summary = v.text.Label, v.text.Gauge, v.text.Counter, v.text.Summary
	out.Untyped, out.Histogram, out.TimestampMs = v.text.Untyped, v.text.Histogram, v.text.TimestampMs
	return nil
}
