// Transfers and answers that meet the end of what they are about.

package runner_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestNoOutputAfterTheCompletion: an output that meets the completion of its
// lease waits for it, and is not kept once it has happened.
func TestNoOutputAfterTheCompletion(t *testing.T) {
	d := newDepot(t)
	d.speak("a", "d1")
	lease := d.lease("a", func(j *runner.JobSpec) { j.Outputs = []runner.Output{{Name: "bin", Path: "out"}} })
	completion, err := pgx.Connect(t.Context(), d.super.Config().ConnString())
	require.NoError(t, err)
	defer func() { require.NoError(t, completion.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := completion.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE forge.leases SET state = 'done', outcome = 'succeeded', ended_at = coordination.clock() WHERE id = $1::text::uuid`, lease)
	require.NoError(t, err)

	bytes := tree(t, map[string]string{"prog": "binary"})
	kept := make(chan error, 1)
	go func() { kept <- d.keep("a", lease, "bin", "out", bytes, artifact.DigestOf(bytes).String()) }()
	require.Eventually(t, func() bool {
		return one[bool](d.plane, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%forge.artifacts%')`)
	}, soon, time.Millisecond, "it waits")
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorContains(t, <-kept, "FY-RUN-005")
	require.Zero(t, one[int](d.plane, `SELECT count(*)::int FROM forge.artifacts`))
}

// TestFollowerOfNothingIsCut: a daemon that stops while an attempt is still to
// begin gives no answer; an empty one would say that the log is whole.
func TestFollowerOfNothingIsCut(t *testing.T) {
	p := newPlane(t)
	run, _, err := runner.Submit(t.Context(), p.store, runner.RunSpec{Name: "run", Jobs: []runner.JobSpec{{Name: "job", Argv: []string{"true"}}}}, "")
	require.NoError(t, err)
	logs, err := artifact.NewLogs(nil, p.store)
	require.NoError(t, err)
	t.Cleanup(logs.Close)
	mux := http.NewServeMux()
	ctx, stop := context.WithCancel(t.Context())
	for _, r := range runner.NewAPI(runner.APIConfig{Store: stopping{p.store, stop}, Logs: logs}).Routes() {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	answer := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, "GET", "/v1/runs/"+run+"/jobs/job/logs?follow=true", nil))
	})
	require.Zero(t, answer.Body.Len())
}

// stopping is the database of a daemon that stops once something was read.
type stopping struct {
	runner.Database
	stop func()
}

func (s stopping) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	defer s.stop()
	return s.Database.Batch(ctx, fill)
}

// TestTransferThatPanicsLeaves: its place and its count are given back.
func TestTransferThatPanicsLeaves(t *testing.T) {
	s := runner.NewTransfers(runner.TransfersConfig{Store: panickingDatabase{}})
	lease := "00000000-0000-4000-8000-000000000000"
	for range runner.MaxTransfers + 1 {
		require.PanicsWithValue(t, "database", func() {
			_ = s.ServeTransfer(t.Context(), "a", runner.Transfer{Log: &runner.Log{Lease: lease}}, runner.TransferStream{})
		})
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s.Collectors()...)
	families, err := r.Gather()
	require.NoError(t, err)
	gauges := 0
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Gauge != nil {
				gauges++
				require.Zero(t, m.Gauge.GetValue(), f.GetName())
			}
		}
	}
	require.Positive(t, gauges)
}

type panickingDatabase struct{}

func (panickingDatabase) Batch(context.Context, func(*pgx.Batch)) error { panic("database") }
