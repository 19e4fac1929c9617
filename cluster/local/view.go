// What a standalone node knows of itself: views, leadership, reports. None of these blocks.

package local

import (
	"context"
	"time"

	"github.com/forgeyard/forgeyard/cluster"
)

// Self is this process, with the ids that Open found or minted.
func (b *Backend) Self() cluster.Identity { return b.self }

// View returns the committed view.
func (b *Backend) View() cluster.View {
	v := cluster.View{View: *b.view.Load(), Confirmed: b.Confirmed(), RaftTerm: b.term}
	if _, ok := b.Leadership(); ok {
		v.KnownLeader = b.self.Node
	}
	return v
}

// Changes hints that the view changed; see cluster.Backend.
func (b *Backend) Changes() (hint <-chan struct{}, stop func()) { return b.hints.Subscribe() }

// LinearizableView returns the committed view: nobody else can have committed anything.
func (b *Backend) LinearizableView(ctx context.Context) (cluster.View, error) {
	if err := b.usable(ctx); err != nil {
		return cluster.View{}, err
	}
	return b.View(), nil
}

// Confirmed is now, as this process alone decides; zero once storage failed or the engine is closed.
func (b *Backend) Confirmed() time.Time {
	if b.isClosed() || b.failed.Load() != nil {
		return time.Time{}
	}
	return b.now()
}

// Leadership is this process's own term; false once storage failed or the engine is closed.
func (b *Backend) Leadership() (cluster.Leadership, bool) {
	if b.isClosed() || b.failed.Load() != nil {
		return cluster.Leadership{}, false
	}
	return cluster.Leadership{Term: b.term}, true
}

// SetReporter sets the source of this node's health reports.
func (b *Backend) SetReporter(report func() cluster.HealthReport) { b.reporter.Store(&report) }

// Reports returns this node's own report, made now.
func (b *Backend) Reports() []cluster.NodeReport {
	report := b.reporter.Load()
	if _, ok := b.Leadership(); !ok || report == nil {
		return nil
	}
	return []cluster.NodeReport{{HealthReport: (*report)(), Received: b.now()}}
}

// Peers is empty: there is no other member.
func (b *Backend) Peers() []cluster.Peer { return nil }

// StepDown does nothing: there is no other voter.
func (b *Backend) StepDown(ctx context.Context, reason string) error { return b.usable(ctx) }
