// Package scenario holds what is done to a fleet of real processes and what must then be true.
//
// testkit/fleettest runs most of them once, testkit/chaos draws all by seed.
// Every scenario leaves the fleet whole, so that the next one can follow. A time
// is asserted at Slack times its stated bound only; order is read from the traces.
//
// This file: the running fleet and what every scenario asks of it.
package scenario

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/cluster/trace"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// Slack multiplies every stated bound that a scenario asserts.
const Slack = 5

// Bound is how long one scenario may take before it counts as stuck.
const Bound = 3 * time.Minute

// role is the one whose ownership the scenarios follow: the job plane's.
const role = fsm.SchedulerLeader

// World is a running fleet whose daemons trace and whose history is recorded.
type World struct {
	*fleet.Fleet

	exe string // the product

	mu    sync.Mutex
	acked []string                      // runs of the traffic that a daemon acknowledged
	told  map[uuid.UUID]history.Outcome // what the client of each submission was told
}

// Start runs a fleet that ends with the test. Its logs are kept when the test failed.
func Start(t testing.TB, o fleet.Options) *World {
	t.Helper()
	ctx := bounded(t)
	dir, err := os.MkdirTemp("", "fyt") // short: unix sockets live below it
	require.NoError(t, err)
	o.Dir, o.Binary, o.Trace, o.LoseReplies, o.Env = dir, binary(t), true, true, append(o.Env, fleet.CrashEnv)
	f, err := fleet.Start(ctx, o)
	if err != nil {
		t.Logf("logs are kept in %s", dir)
	}
	require.NoError(t, err)
	w := &World{Fleet: f, exe: o.Binary, told: map[uuid.UUID]history.Outcome{}}
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, f.Stop(stop))
		if t.Failed() {
			t.Logf("logs are kept in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	w.database(t, func(ctx context.Context, c *pgx.Conn) { require.NoError(t, history.Install(ctx, c)) })
	return w
}

// binary is the product: FORGEYARD_BIN, else built for this test.
func binary(t testing.TB) string {
	t.Helper()
	if b := os.Getenv("FORGEYARD_BIN"); b != "" {
		return b
	}
	return build(t, "cmd/forgeyard")
}

// build makes a program of this module for this test.
func build(t testing.TB, folder string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(folder))
	text, err := exec.Command("go", "build", "-o", out, "github.com/forgeyard/forgeyard/"+folder).CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}

// bounded is the context of one scenario.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Bound)
	t.Cleanup(cancel)
	return ctx
}

// database runs do with a superuser's connection that no fault reaches but a stop of the server.
func (w *World) database(t testing.TB, do func(context.Context, *pgx.Conn)) {
	t.Helper()
	ctx := bounded(t)
	conn, err := pgx.Connect(ctx, w.DSN("postgres"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	do(ctx, conn)
}

// count reads one number.
func (w *World) count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, w.Query(bounded(t), sql, args, &n))
	return n
}

// leases counts the leases ever made.
func (w *World) leases(t testing.TB) int { return w.count(t, `SELECT count(*) FROM forge.leases`) }

// moreLeases waits until n leases more than now were made.
func (w *World) moreLeases(t testing.TB, n int) {
	t.Helper()
	require.NoError(t, w.WaitLeases(bounded(t), w.leases(t)+n))
}

// owner is the daemon on which the role is active under an epoch above the given one.
func (w *World) owner(t testing.TB, above fsm.Epoch) (*fleet.Node, fsm.Epoch) {
	t.Helper()
	n, epoch, err := w.RoleOwner(bounded(t), role, above)
	require.NoError(t, err)
	return n, epoch
}

// whole waits until a daemon sees all voters healthy and a leader.
func (w *World) whole(t testing.TB, n *fleet.Node) health.ClusterStatus {
	t.Helper()
	s, err := n.WaitStatus(bounded(t), "all voters healthy", func(s health.ClusterStatus) bool {
		return s.Leader.Node != (fsm.NodeID{}) && s.Quorum.VotersHealthy == s.Quorum.VotersTotal
	})
	require.NoError(t, err)
	return s
}

// now is this instant on the time scale of the traces.
func now() int64 { return trace.Mono(time.Now()) }

// within requires a span at most Slack times the stated bound.
func within(t testing.TB, bound time.Duration, from, to int64, what string) {
	t.Helper()
	took := time.Duration(to - from)
	t.Logf("%s: %s (stated bound %s)", what, took.Round(time.Millisecond), bound)
	require.LessOrEqual(t, took, Slack*bound, what)
}

// eventually polls on the test's own goroutine, so that cond may fail the test itself.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx := bounded(t)
	for !cond() {
		select {
		case <-ctx.Done():
			require.Failf(t, "never happened", "%s: %v", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// elapse waits for a span that is part of a fault.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}
