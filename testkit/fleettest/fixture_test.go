// The fleet that the scenarios of this package break and mend, one after the other.

package fleettest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// slack multiplies every stated bound that a test asserts.
const slack = 5

// scenarioBound is how long one scenario may take before it counts as stuck.
const scenarioBound = 3 * time.Minute

// binary is the product: FORGEYARD_BIN, else built once for this test run.
func binary(t testing.TB) string {
	t.Helper()
	if b := os.Getenv("FORGEYARD_BIN"); b != "" {
		return b
	}
	out := filepath.Join(t.TempDir(), "forgeyard")
	cmd := exec.Command("go", "build", "-o", out, "github.com/forgeyard/forgeyard/cmd/forgeyard")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return out
}

// world is a running fleet with a recorded history.
type world struct {
	*fleet.Fleet
	t   testing.TB
	ctx context.Context
}

// start runs a fleet of three daemons and two agents, records its history, and
// checks the history at the end of the test.
func start(t testing.TB, o fleet.Options) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), scenarioBound)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "fyt") // short: unix sockets live below it
	require.NoError(t, err)
	o.Dir, o.Binary, o.Trace = dir, binary(t), true
	f, err := fleet.Start(ctx, o)
	if err != nil {
		t.Logf("logs are kept in %s", dir)
	}
	require.NoError(t, err)
	w := &world{Fleet: f, t: t, ctx: ctx}
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
	w.withDatabase(func(c *pgx.Conn) { require.NoError(t, history.Install(ctx, c)) })
	return w
}

func (w *world) withDatabase(do func(*pgx.Conn)) {
	w.t.Helper()
	conn, err := pgx.Connect(w.ctx, w.Postgres.DSN("postgres", "forgeyard"))
	require.NoError(w.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(w.ctx)) }()
	do(conn)
}

// load submits count short jobs over all running daemons.
func (w *world) load(name string, count int, script string) {
	w.t.Helper()
	const batch = 100
	for i := 0; i < count; i += batch {
		_, err := w.Submit(w.ctx, i/batch, fleet.ShellRun(name, min(batch, count-i), script))
		require.NoError(w.t, err)
	}
}

// settle waits until all work is over and checks everything that a user may
// rely on: nothing lost, nothing twice, no invariant broken, enough traffic.
func (w *world) settle(leases int) fleet.Verdict {
	w.t.Helper()
	require.NoError(w.t, w.WaitTerminal(w.ctx))
	v, err := w.Check(w.ctx)
	require.NoError(w.t, err)
	require.Empty(w.t, v.Problems())
	require.LessOrEqual(w.t, v.MaxAttempt, 2)
	w.withDatabase(func(c *pgx.Conn) {
		r, err := history.Check(w.ctx, c)
		require.NoError(w.t, err)
		require.NoError(w.t, r.Err(map[string]int{"acquire": 1, "write": leases, "complete": leases}))
	})
	return v
}

// grep returns the lines of a file that contain text.
func grep(t testing.TB, file, text string) (lines []string) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}
