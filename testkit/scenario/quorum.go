// No majority: nothing is granted, what runs completes, and the status says why.

package scenario

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// LoseQuorum cuts every daemon off from the others; agents and PostgreSQL stay
// reachable. Jobs that run complete and are accepted, new ones wait, nothing is
// granted, and `forgeyard cluster status` says why with exit status 4. There must
// be no other traffic.
func LoseQuorum(t testing.TB, w *World, running int) {
	require.NoError(t, w.WaitTerminal(bounded(t)))
	ctx := bounded(t)
	g := w.gate(t, "quorum")
	held := w.Accepted(t, 0, fleet.ShellRun("held", running, g.wait()))
	_, before := w.owner(t, 0)
	eventually(t, "all jobs of the run are leased", func() bool {
		return w.count(t, `SELECT count(*) FROM forge.jobs WHERE run_id = $1 AND state = 'leased'`, held.ID) == running
	})

	lost := now()
	began := time.Now()
	for _, n := range w.Nodes() {
		require.NoError(t, w.Partition(n.Name, false))
	}
	for _, n := range w.Nodes() {
		_, err := n.WaitStatus(ctx, "no quorum", func(s health.ClusterStatus) bool { return s.Headline == health.NoQuorum })
		require.NoError(t, err)
	}
	statusSaysWhy(t, w.Nodes()[0])
	waiting, err := w.Submit(ctx, 1, fleet.ShellRun("waiting", running, "true"))
	require.NoError(t, err, "a run is accepted without a quorum")
	g.open(t)
	w.ended(t, held.ID, runner.RunSucceeded)
	require.Zero(t, w.count(t, `SELECT count(*) FROM forge.leases l JOIN forge.jobs j ON j.id = l.job_id WHERE j.run_id = $1`, waiting.ID), "a job was leased without a quorum")
	_, grants := w.moves(t, lost+int64(stopsWithin), now())
	require.Zero(t, grants, "a role was granted without a quorum")

	w.database(t, func(ctx context.Context, c *pgx.Conn) {
		require.NoError(t, history.AddFault(ctx, c, history.QuorumLoss, began, time.Now()))
	})
	require.NoError(t, w.MendAll())
	w.owner(t, before)
	w.ended(t, waiting.ID, runner.RunSucceeded)
	for _, n := range w.Nodes() {
		w.whole(t, n)
	}
}

// statusSaysWhy asks as an operator does.
func statusSaysWhy(t testing.TB, n *fleet.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), "cluster", "status", "--endpoint", n.Endpoint())
	began := now()
	text, err := cmd.CombinedOutput()
	within(t, 2*time.Second, began, now(), "cluster status without a quorum")
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "exit status 0: %s", text)
	require.Equal(t, 4, exit.ExitCode(), string(text))
	require.Contains(t, string(text), string(health.NoQuorum))
	require.Regexp(t, `(?i)unreachable|no leader|majority|contact`, string(text), "it does not say why")
}
