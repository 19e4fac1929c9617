// Proposals: how long a commit takes and what fails, seen from the process that proposes.

package obs

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

// Proposals measures the proposals of the backends it wraps. It is a prometheus.Collector.
type Proposals struct {
	spans   Spans
	now     func() time.Time
	latency prometheus.Histogram
	failed  *prometheus.CounterVec
}

// NewProposals makes one; nil spans take nothing, a nil clock is time.Now.
func NewProposals(spans Spans, now func() time.Time) *Proposals {
	if spans == nil {
		spans = NoSpans
	}
	if now == nil {
		now = time.Now
	}
	return &Proposals{
		spans: spans, now: now,
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "raft_commit_latency_seconds",
			Help:    "From proposing a change in this process until it was committed, through another node where that one leads.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "raft_proposals_failed_total", Help: "Proposals of this process that were not accepted, by kind of error.",
		}, []string{"kind"}),
	}
}

// Wrap returns the backend with its proposals measured.
func (p *Proposals) Wrap(b cluster.Backend) cluster.Backend { return measured{b, p} }

type measured struct {
	cluster.Backend
	proposals *Proposals
}

func (m measured) Propose(ctx context.Context, proposal fsm.Proposal) (cluster.Commit, error) {
	began := m.proposals.now()
	commit, err := m.Backend.Propose(ctx, proposal)
	m.proposals.note(ctx, proposal.Command, began, commit, err)
	return commit, err
}

func (p *Proposals) note(ctx context.Context, c fsm.Command, began time.Time, commit cluster.Commit, err error) {
	took := p.now().Sub(began)
	if err == nil {
		p.latency.Observe(took.Seconds())
	} else {
		p.failed.WithLabelValues(label(cluster.KindOf(err))).Inc()
	}
	p.spans.Span(ctx, Span{Name: spanOf(c), Began: began, Took: took, Err: err, Attrs: []slog.Attr{
		slog.String("command", c.Kind().String()), slog.Uint64("index", commit.Index), slog.Uint64("term", commit.Term),
		slog.Uint64("epoch", uint64(commit.Epoch)),
	}})
}

// label keeps kinds that a newer peer sent out of the labels.
func label(k cluster.Kind) string {
	if name := k.String(); !strings.Contains(name, "(") {
		return name
	}
	return cluster.Internal.String()
}

// spanOf names the span of a proposal (§252).
func spanOf(c fsm.Command) string {
	switch c := c.(type) {
	case fsm.AddLearner, fsm.PromoteVoter, fsm.RemoveMember, fsm.UpdateMember:
		return SpanMembership
	case fsm.BumpEpoch:
		if c.Role == 0 {
			return SpanLeaderChange
		}
	}
	return SpanPropose
}

// Describe implements prometheus.Collector.
func (p *Proposals) Describe(out chan<- *prometheus.Desc) {
	p.latency.Describe(out)
	p.failed.Describe(out)
}

// Collect implements prometheus.Collector.
func (p *Proposals) Collect(out chan<- prometheus.Metric) {
	p.latency.Collect(out)
	p.failed.Collect(out)
}
