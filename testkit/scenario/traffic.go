// Traffic: somebody submits short jobs all the time, whatever happens to the fleet; and what every client was told.

package scenario

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// The queue is filled up by trafficBatch jobs when it holds fewer than trafficLow.
const (
	trafficLow   = 60
	trafficBatch = 60
)

// Traffic submits jobs through all running daemons in turn until stop is called,
// which the end of the test does too. Refused submissions are part of a fault:
// the next daemon is asked.
func (w *World) Traffic(t testing.TB) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			var queued int
			err := w.Query(ctx, `SELECT count(*) FROM forge.jobs WHERE state = 'queued'`, nil, &queued)
			if err == nil && queued < trafficLow {
				run, err := w.Submit(ctx, i, fleet.ShellRun("traffic", trafficBatch, "sleep 0.05"))
				if err == nil {
					w.mu.Lock()
					w.acked = append(w.acked, run.ID)
					w.mu.Unlock()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	stop = func() {
		cancel()
		work.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Submit is the fleet's, under a key of its own: the history holds what the client
// was told against the rows.
func (w *World) Submit(ctx context.Context, i int, spec runner.RunSpec) (runner.Run, error) {
	return w.submitAs(ctx, uuid.New(), i, spec)
}

func (w *World) submitAs(ctx context.Context, key uuid.UUID, i int, spec runner.RunSpec) (runner.Run, error) {
	run, err := w.SubmitKeyed(ctx, i, key.String(), spec)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[key] = verdict(err)
	return run, err
}

// verdict is what the client of a submission knows of it.
func verdict(err error) history.Outcome {
	var refused *fleet.Refusal
	switch {
	case err == nil:
		return history.Acknowledged
	case errors.As(err, &refused):
		return history.Answered(refused.Status)
	}
	return history.Unknown
}
