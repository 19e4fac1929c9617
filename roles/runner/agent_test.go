// An agent's leases across daemons: from order to result, over lost links and lost daemons.

package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/store"
)

// TestJobFromOrderToResult follows one lease through offer, start, output and completion.
func TestJobFromOrderToResult(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	dir := t.TempDir()
	a := p.agent("a", dir, processes(), "d1")
	lease := p.lease("a", func(j *runner.JobSpec) {
		j.Argv, j.Env = []string{"sh", "-c", "echo out $GREETING $FORGEYARD_ATTEMPT; echo err >&2; pwd >&2; exit 3"}, map[string]string{"GREETING": "hello"}
	})
	p.becomes(lease, "done")
	run, err := runner.Get(t.Context(), p.store, one[string](p, `SELECT id FROM forge.runs`))
	require.NoError(t, err)
	require.Equal(t, runner.RunFailed, run.State)
	require.Equal(t, runner.JobFailed, run.Jobs[0].State)
	require.Equal(t, "exit status 3", run.Jobs[0].Reason)
	l := run.Jobs[0].Leases[0]
	require.Equal(t, runner.Failed, l.Outcome)
	require.Equal(t, 3, *l.ExitCode)
	require.Contains(t, l.OutputTail, "out hello 1\nerr\n"+dir)
	require.EqualValues(t, 7, l.Epoch)
	require.Equal(t, a.Session(), one[string](p, `SELECT session FROM forge.leases`))
	require.Equal(t, "delivered", one[string](p, `SELECT state FROM forge.dispatch`))

	starts := entries(t, dir, runner.EntryStart)
	require.Len(t, starts, 1)
	require.Equal(t, []any{lease, 1, int64(7), int64(1)}, []any{starts[0].Lease, starts[0].Attempt, int64(starts[0].Epoch), int64(starts[0].Generation)})
	require.Eventually(t, func() bool { return len(entries(t, dir, runner.EntryClose)) == 1 }, soon, time.Millisecond)
	require.Len(t, entries(t, dir, runner.EntryFinish), 1)
}

// TestAgentReconnect kills the daemon that holds an agent's link: the agent
// links to the next one, its lease runs on, and the other daemon takes the
// completion (§115, §116).
func TestAgentReconnect(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	p.daemon("d2")
	ex := newGate()
	p.agent("a", t.TempDir(), ex, "d1", "d2")
	lease := p.lease("a", nil)
	p.accepted(lease)
	require.Eventually(t, func() bool { return ex.starts(lease) == 1 }, soon, time.Millisecond)
	require.Equal(t, "d1", one[string](p, `SELECT node FROM forge.agents`))
	p.raise(8) // the scheduler's epoch changes meanwhile: it is no business of a running lease
	p.net.Stop("d1")
	require.Eventually(t, func() bool { return one[string](p, `SELECT coalesce(node, '') FROM forge.agents`) == "d2" }, soon, time.Millisecond)
	ex.let()
	p.becomes(lease, "done")
	require.Equal(t, 1, ex.starts(lease))
	require.Equal(t, "succeeded", one[string](p, `SELECT state FROM forge.jobs`))
}

// TestTransportSessionChanges at every connect, and TestAgentSessionStable shows
// what stays: the agent links to any daemon that answers (§114, §117).
func TestTransportSessionChanges(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	p.agent("a", t.TempDir(), newGate(), "none", "d1")
	seen := map[string]bool{}
	for range 3 {
		require.Eventually(t, func() bool {
			link := one[string](p, `SELECT coalesce(link, '') FROM forge.agents`)
			fresh := link != "" && !seen[link]
			seen[link] = true
			return fresh
		}, soon, 5*time.Millisecond)
		p.net.Stop("d1")
		p.daemon("d1")
	}
}

// TestAgentSessionStable: the session is the agent process's: the same on all
// its links, another one for the next process (§118).
func TestAgentSessionStable(t *testing.T) {
	dir := t.TempDir()
	hellos := func(s scripted) string {
		l := <-s.links
		m, err := l.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return m.Hello.Session
	}
	l, s, stop := script(t, dir, newGate(), runner.Welcome{})
	require.NoError(t, l.Close())
	first := hellos(s)
	require.NotEmpty(t, first)
	require.Equal(t, first, hellos(s))
	stop()
	l, s, _ = script(t, dir, newGate(), runner.Welcome{})
	require.NoError(t, l.Close())
	require.NotEqual(t, first, hellos(s))
}

// TestAgentResyncLeases: what the next daemon keeps runs on and is completed
// there; what it does not keep is killed and reported (§116).
func TestAgentResyncLeases(t *testing.T) {
	ex := newGate()
	l, s, _ := script(t, t.TempDir(), ex, runner.Welcome{})
	for _, lease := range []string{"kept", "lost"} {
		say(t, l, runner.Message{Offer: order(lease, 1, 1)})
		hear(t, l, answerTo(lease))
		say(t, l, runner.Message{Start: &runner.Start{Lease: lease, Granted: true}})
		require.Eventually(t, func() bool { return ex.starts(lease) == 1 }, soon, time.Millisecond)
	}
	require.NoError(t, l.Close())
	l = s.accept(runner.Welcome{Keep: []string{"kept"}})
	require.Equal(t, "lost", hear(t, l, releases).Lease)
	ex.let()
	require.Equal(t, "kept", hear(t, l, completes).Lease)
	require.Equal(t, 1, ex.starts("kept"))
}

// severable is a daemon's way to the database.
type severable struct {
	runner.Database
	cut atomic.Bool
}

func (d *severable) Batch(ctx context.Context, fill func(*pgx.Batch)) error {
	if d.cut.Load() {
		return store.ErrUnavailable
	}
	return d.Database.Batch(ctx, fill)
}

// TestBlindDaemonSendsItsAgentsAway takes the database from the one daemon that
// holds an agent's link: the agent moves to a daemon that reaches it, and its
// lease is extended and completed there.
func TestBlindDaemonSendsItsAgentsAway(t *testing.T) {
	p := newPlane(t)
	db := &severable{Database: p.store}
	p.daemonOver("d1", db)
	p.daemon("d2")
	ex := newGate()
	p.agent("a", t.TempDir(), ex, "d1", "d2")
	lease := p.lease("a", nil)
	require.Eventually(t, func() bool { return ex.starts(lease) == 1 }, soon, time.Millisecond)
	require.Equal(t, "d1", one[string](p, `SELECT node FROM forge.agents`))
	db.cut.Store(true)
	require.Eventually(t, func() bool { return one[string](p, `SELECT coalesce(node, '') FROM forge.agents`) == "d2" }, soon, 5*time.Millisecond)
	ex.let()
	p.becomes(lease, "done")
	require.Equal(t, 1, ex.starts(lease))
}

// TestRestartedAgentStartsNothingTwice restarts an agent over its directory: a
// new session, the lease it had started is given up at once, never run again;
// a result that nobody had heard is reported.
func TestRestartedAgentStartsNothingTwice(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	dir := t.TempDir()
	ex := newGate()
	first := p.agent("a", dir, ex, "d1")
	lost, heard := p.lease("a", nil), p.lease("a", nil)
	for _, l := range []string{lost, heard} {
		p.accepted(l)
		require.Eventually(t, func() bool { return ex.starts(l) == 1 }, soon, time.Millisecond)
	}
	p.net.Stop("d1") // nothing can be reported
	first.stop()
	require.Len(t, entries(t, dir, runner.EntryFinish), 2)
	// The kill took the process between its two last records of the second lease: it had ended well.
	code := 0
	appendEntry(t, dir, runner.Entry{What: runner.EntryFinish, Lease: heard, Job: "job", Attempt: 1, Outcome: runner.Succeeded, ExitCode: &code})
	p.exec(`UPDATE forge.dispatch SET state = 'open'`) // the worst a daemon could do

	p.daemon("d1")
	again := newGate()
	second := p.agent("a", dir, again, "d1")
	require.NotEqual(t, first.Session(), second.Session())
	p.becomes(heard, "done")
	require.Eventually(t, func() bool {
		return one[bool](p, `SELECT expires_at <= coordination.clock() AND state = 'active' FROM forge.leases WHERE id = $1::text::uuid`, lost)
	}, soon, 5*time.Millisecond, "its time is ended, so that the expiry loop queues the job again")
	require.Zero(t, again.starts(lost)+again.starts(heard))
	require.Len(t, entries(t, dir, runner.EntryStart), 2)
}

// TestForgottenStartIsNotRepeated takes the end of an agent's journal away, the start of
// a lease with it: no daemon offers the lease again to another process than the one that
// accepted it, so it runs out and its job is repeated as another attempt.
func TestForgottenStartIsNotRepeated(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	dir := t.TempDir()
	ex := newGate()
	first := p.agent("a", dir, ex, "d1")
	forgotten := p.lease("a", nil)
	require.Eventually(t, func() bool { return ex.starts(forgotten) == 1 }, soon, time.Millisecond)
	p.net.Stop("d1") // nothing can be reported
	first.stop()
	require.NoError(t, os.Truncate(filepath.Join(dir, runner.StartsFile), 0))

	p.daemon("d1")
	again := newGate()
	again.let()
	p.agent("a", dir, again, "d1")
	p.becomes(p.lease("a", nil), "done") // was offered no earlier than the forgotten one
	require.Zero(t, again.starts(forgotten))
	require.Equal(t, "active", one[string](p, `SELECT state FROM forge.leases WHERE id = $1::text::uuid`, forgotten), "it runs out")
}

// TestFencingClockStaleOrderIsRefused shows the agent's high-water mark: an order below the
// highest it has seen is answered "read again", also after a restart, and once
// it carries the current epoch it runs.
func TestFencingClockStaleOrderIsRefused(t *testing.T) {
	p := newPlane(t)
	p.daemon("d1")
	dir := t.TempDir()
	ex := newGate()
	ex.let()
	a := p.agent("a", dir, ex, "d1")
	p.raise(9)
	p.becomes(p.lease("a", nil), "done")

	a.stop()
	stale := p.lease("a", nil)
	p.exec(`ALTER TABLE forge.dispatch DISABLE TRIGGER USER`)
	p.exec(`UPDATE forge.dispatch SET epoch = 8 WHERE lease_id = $1::text::uuid`, stale) // as if its issuer had been overtaken
	p.agent("a", dir, ex, "d1")
	p.becomes(p.lease("a", nil), "done") // was offered no earlier than the stale one
	require.Zero(t, ex.starts(stale))
	require.Equal(t, "open", one[string](p, `SELECT state FROM forge.dispatch WHERE lease_id = $1::text::uuid`, stale))
	require.False(t, one[bool](p, `SELECT accepted_at IS NOT NULL FROM forge.leases WHERE id = $1::text::uuid`, stale), "a refusal is no failed start")
	p.exec(`UPDATE forge.dispatch SET epoch = 9 WHERE lease_id = $1::text::uuid`, stale)
	p.becomes(stale, "done")
	require.Equal(t, 1, ex.starts(stale))
}
