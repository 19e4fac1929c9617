// The product beside River: leases and completions, submissions, more and more agents.

package peers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/postgres"
)

const (
	rounds = 5 // of each side, in turn: what else the machine does befalls both
	many   = 10
	few    = 2 // thousands of jobs for whole agents, which sync their journal twice a job
	// Both sides may have so many jobs under way at a time.
	atOnce = 1000
)

// durable starts the PostgreSQL that both sides use, with fsync.
func durable(b *testing.B) *postgres.Server {
	b.Helper()
	dir, err := os.MkdirTemp("/tmp", "fypeers")
	require.NoError(b, err)
	srv, err := postgres.Start(b.Context(), postgres.Options{
		Dir: dir, Fsync: true, Remove: true, Extra: []string{"max_wal_size=4GB", "shared_buffers=512MB"},
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, srv.Stop(context.WithoutCancel(b.Context()))) })
	return srv
}

// BenchmarkLeaseAndComplete works off thousands of queued jobs: River with no-op workers, the product with bare agents, with
// whole ones, and with whole ones over QUIC. Jobs are stored before and not counted.
func BenchmarkLeaseAndComplete(b *testing.B) {
	for _, way := range []struct {
		name      string
		thousands int
		start     func(*plane, *testing.B) (stop func())
	}{
		{"bare", many, func(p *plane, b *testing.B) func() { return p.bare(b, 2, atOnce/2) }},
		{"agents", few, func(p *plane, b *testing.B) func() { return p.inMemory(b, 2, atOnce/2) }},
		{"quic", few, func(p *plane, b *testing.B) func() { return p.overQUIC(b, 2, atOnce/2) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			srv := durable(b)
			river, fleet := newRiver(b, srv, "river", atOnce), newPlane(b, srv, "plane")
			stop := way.start(fleet, b)
			defer stop()
			for range b.N {
				var theirs, ours []float64
				for range rounds {
					river.tidy(b)
					fleet.tidy(b)
					river.insert(b, way.thousands*1000)
					theirs = append(theirs, float64(way.thousands)*1000/river.drain(b).Seconds())
					fleet.insert(b, way.thousands)
					ours = append(ours, float64(way.thousands)*1000/fleet.drain(b).Seconds())
				}
				compare(b, "jobs/s", ours, theirs)
			}
		})
	}
}

// BenchmarkSubmit stores one run of 1,000 jobs beside one InsertMany of 1,000.
func BenchmarkSubmit(b *testing.B) {
	srv := durable(b)
	river, fleet := newRiver(b, srv, "river", 1), newPlane(b, srv, "plane")
	spec := thousand()
	for range b.N {
		var theirs, ours []float64
		for range 10 * rounds {
			began := time.Now()
			river.insert(b, 1000)
			theirs = append(theirs, 1000/time.Since(began).Seconds())
			began = time.Now()
			_, _, err := runner.Submit(b.Context(), fleet.store, spec, "")
			require.NoError(b, err)
			ours = append(ours, 1000/time.Since(began).Seconds())
		}
		compare(b, "jobs/s", ours, theirs)
	}
}

// BenchmarkAgents works off 10,000 jobs with more and more bare agents of the same capacity in all.
func BenchmarkAgents(b *testing.B) {
	for _, n := range []int{2, 20, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fleet := newPlane(b, durable(b), "plane")
			stop := fleet.bare(b, n, atOnce/n)
			defer stop()
			for range b.N {
				var ours []float64
				for range rounds {
					fleet.tidy(b)
					fleet.insert(b, many)
					ours = append(ours, many*1000/fleet.drain(b).Seconds())
				}
				slices.Sort(ours)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ours[len(ours)/2], "jobs/s")
				b.Logf("%d agents: %.0f jobs/s, from %.0f to %.0f in %d rounds", n, ours[len(ours)/2], ours[0], ours[len(ours)-1], len(ours))
			}
		})
	}
}

// compare reports the medians, their ratio, the spread of the rounds, and the ratio of each pair of rounds.
func compare(b *testing.B, unit string, ours, theirs []float64) {
	b.Helper()
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ours[i] / theirs[i]
	}
	for _, s := range [][]float64{ours, theirs, ratios} {
		slices.Sort(s)
	}
	middle := len(ours) / 2
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours[middle], unit)
	b.ReportMetric(theirs[middle], "river-"+unit)
	b.ReportMetric(ratios[middle], "x-river")
	b.Logf("%d rounds each, median (least to most): %.0f (%.0f to %.0f) beside %.0f (%.0f to %.0f) %s; ratio %.2f (%.2f to %.2f)",
		len(ours), ours[middle], ours[0], ours[len(ours)-1], theirs[middle], theirs[0], theirs[len(theirs)-1], unit,
		ratios[middle], ratios[0], ratios[len(ratios)-1])
}
