// The check at the end of a fleet: rows, agents' logs, acknowledged submissions and traces must tell one story.

package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// Settle waits until all work is over and checks everything that a user may rely
// on: nothing lost, nothing twice, no invariant and no order broken, enough
// traffic. Nobody may submit any more. It checks a fleet once.
func (w *World) Settle(t testing.TB, leases int) fleet.Verdict {
	t.Helper()
	ctx := bounded(t)
	require.NoError(t, w.WaitTerminal(ctx))
	v, err := w.Check(ctx)
	require.NoError(t, err)
	require.Empty(t, v.Problems())
	require.LessOrEqual(t, v.MaxAttempt, 2)
	w.database(t, func(ctx context.Context, c *pgx.Conn) {
		require.NoError(t, history.AddAgentEvents(ctx, c, w.agentEvents(t)))
		r, err := history.Check(ctx, c)
		require.NoError(t, err)
		require.NoError(t, r.Err(map[string]int{"acquire": 1, "write": leases, "complete": leases}))
	})
	w.checkAcknowledged(t)
	w.checkOrder(t)
	return v
}

// agentEvents are the agents' own logs as the history takes them.
func (w *World) agentEvents(t testing.TB) (events []history.AgentEvent) {
	t.Helper()
	for _, a := range w.Agents() {
		in, err := os.Open(a.StartsFile())
		if errors.Is(err, os.ErrNotExist) {
			continue // it was never given anything
		}
		require.NoError(t, err)
		lines := bufio.NewScanner(in)
		for n := int64(1); lines.Scan(); n++ {
			var e runner.Entry
			require.NoError(t, json.Unmarshal(lines.Bytes(), &e), a.StartsFile())
			events = append(events, history.AgentEvent{
				Agent: a.Name, Lease: e.Lease, Job: e.Job, What: string(e.What), N: n,
				Generation: int64(e.Generation), Epoch: int64(e.Epoch), Attempt: e.Attempt,
			})
		}
		require.NoError(t, errors.Join(lines.Err(), in.Close()))
	}
	require.NotEmpty(t, events, "no agent has logged anything")
	return events
}

// checkAcknowledged requires every job of every run that a daemon acknowledged.
func (w *World) checkAcknowledged(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, len(w.acked)*trafficBatch, w.count(t, `SELECT count(*) FROM forge.jobs WHERE run_id = ANY($1)`, w.acked), "acknowledged jobs were lost")
}
