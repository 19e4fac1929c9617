package runner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
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
		hear(t, l, answers)
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

// TestStaleOrderIsRefused shows the agent's high-water mark: an order below the
// highest it has seen is answered "read again", also after a restart, and once
// it carries the current epoch it runs.
func TestStaleOrderIsRefused(t *testing.T) {
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

// scripted is an agent's peer under the test's control: the daemon's end of one link.
type scripted struct {
	t     *testing.T
	links chan runner.Link
	serve func(runner.Frames) // transfer streams; nil refuses them
}

func (s scripted) Dial(context.Context, string) (runner.Uplink, error) {
	a, b := runnertest.Pipe(s.serve)
	select {
	case s.links <- b:
		return a, nil
	default:
		return nil, errors.New("connection refused")
	}
}

// script runs an agent against a scripted daemon and returns its first link, welcomed.
func script(t *testing.T, dir string, ex runner.Executor, welcome runner.Welcome) (runner.Link, scripted, func()) {
	t.Helper()
	s := scripted{t: t, links: make(chan runner.Link, 1)}
	l, stop := s.run(dir, ex, welcome)
	return l, s, stop
}

// run runs an agent that links to the script and returns the first link, welcomed.
func (s scripted) run(dir string, ex runner.Executor, welcome runner.Welcome) (runner.Link, func()) {
	t := s.t
	timing := quick
	timing.Request = 300 * time.Millisecond // a scripted daemon answers no farewell
	a, err := runner.NewAgent(runner.AgentConfig{Endpoints: []string{"127.0.0.1:1"}, Dialer: s, Dir: dir, Slots: 2, Executor: ex, Disk: 64 << 20, Timing: timing})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); require.NoError(t, a.Run(ctx)) }()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return s.accept(welcome), stop
}

func (s scripted) accept(w runner.Welcome) runner.Link {
	l := <-s.links
	m, err := l.Receive(s.t.Context())
	require.NoError(s.t, err)
	require.NotNil(s.t, m.Hello)
	if w.TTL == 0 {
		w.TTL, w.Every = quick.LeaseTTL, time.Hour
	}
	require.NoError(s.t, l.Send(s.t.Context(), runner.Message{Welcome: &w}))
	return l
}

// say sends one message; hear returns the next one that pick finds interesting.
func say(t *testing.T, l runner.Link, m runner.Message) {
	t.Helper()
	require.NoError(t, l.Send(t.Context(), m))
}

func hear[T any](t *testing.T, l runner.Link, pick func(runner.Message) *T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		m, err := l.Receive(ctx)
		require.NoError(t, err)
		if v := pick(m); v != nil {
			return *v
		}
	}
}

func answers(m runner.Message) *runner.Answer { return m.Answer }

func order(lease string, generation, epoch int) *runner.Offer {
	return &runner.Offer{Lease: lease, Role: 1, Generation: fsmGeneration(generation), Epoch: fsmEpoch(epoch), Job: "job-" + lease, Attempt: 1, Timeout: time.Hour, Steps: []runner.Step{{Argv: []string{"x"}}}}
}

// TestHighWaterMark is the rule of refusal, offer by offer: generation before
// epoch, equal is admitted, and a restarted agent remembers.
func TestHighWaterMark(t *testing.T) {
	dir := t.TempDir()
	ex := newGate()
	l, _, stop := script(t, dir, ex, runner.Welcome{})
	verdict := func(l runner.Link, lease string, generation, epoch int) runner.Verdict {
		say(t, l, runner.Message{Offer: order(lease, generation, epoch)})
		return hear(t, l, answers).Verdict
	}
	require.Equal(t, runner.Accepted, verdict(l, "l1", 1, 5))
	require.Equal(t, runner.Reread, verdict(l, "l2", 1, 4))
	require.Equal(t, runner.Accepted, verdict(l, "l2", 1, 5))
	require.Equal(t, runner.Busy, verdict(l, "l3", 1, 6), "both slots are taken; the mark rises all the same")
	require.Equal(t, runner.Reread, verdict(l, "l4", 1, 5))
	require.Equal(t, runner.Accepted, verdict(l, "l1", 1, 6), "a repeated order is accepted again and starts nothing")

	// A running lease of an older generation is dropped, one of this generation is not.
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	require.Eventually(t, func() bool { return ex.starts("l1") == 1 }, soon, time.Millisecond)
	require.Equal(t, runner.Busy, verdict(l, "l5", 2, 1))
	require.Equal(t, "l1", hear(t, l, func(m runner.Message) *runner.Release { return m.Release }).Lease)
	require.Equal(t, runner.Reread, verdict(l, "l6", 1, 99), "an older generation, whatever its epoch")
	stop()

	l, _, _ = script(t, dir, ex, runner.Welcome{})
	require.Equal(t, runner.Reread, verdict(l, "l7", 1, 99))
	require.Equal(t, runner.Accepted, verdict(l, "l8", 2, 1))
	say(t, l, runner.Message{Offer: order("l1", 2, 1)})
	require.Equal(t, "l1", hear(t, l, func(m runner.Message) *runner.Release { return m.Release }).Lease, "started before: given up, not run")
	require.Equal(t, 1, ex.starts("l1"))
}

// TestAgentKillsBeforeItsDeadline: without an answered heartbeat the agent kills its job Margin before its lease can end.
func TestAgentKillsBeforeItsDeadline(t *testing.T) {
	killed := make(chan time.Time, 1)
	ex := runner.ExecutorFunc(func(ctx context.Context, _ runner.Task, _ io.Writer) runner.Exit {
		<-ctx.Done()
		killed <- time.Now()
		return runner.Exit{Signal: "killed"}
	})
	ttl := quick.Margin + 500*time.Millisecond
	l, _, _ := script(t, t.TempDir(), ex, runner.Welcome{TTL: ttl, Every: 50 * time.Millisecond})
	began := time.Now()
	say(t, l, runner.Message{Offer: order("l1", 1, 1)})
	hear(t, l, answers)
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	var last time.Time // answered heartbeats keep it alive past its first deadline
	for time.Since(began) < ttl {
		sent := time.Now()
		b := hear(t, l, func(m runner.Message) *runner.Beat { return m.Beat })
		if len(b.Leases) == 1 {
			say(t, l, runner.Message{Pulse: &runner.Pulse{Seq: b.Seq, Alive: []string{"l1"}}})
			last = sent
		}
	}
	select {
	case at := <-killed:
		require.Greater(t, at.Sub(began), ttl-quick.Margin, "heartbeats extended it")
		require.Less(t, at.Sub(last), ttl, "killed before the lease could end")
	case <-time.After(soon):
		require.Fail(t, "the job outlives its lease")
	}
	r := hear(t, l, func(m runner.Message) *runner.Release { return m.Release })
	require.True(t, strings.Contains(r.Reason, "could not be extended"), r.Reason)
}

// TestLostLeaseIsDropped: what the daemon does not confirm is killed, in a heartbeat's answer and in a resync.
func TestLostLeaseIsDropped(t *testing.T) {
	ex := newGate()
	l, s, _ := script(t, t.TempDir(), ex, runner.Welcome{TTL: quick.LeaseTTL, Every: 20 * time.Millisecond})
	for _, lease := range []string{"l1", "l2"} {
		say(t, l, runner.Message{Offer: order(lease, 1, 1)})
		hear(t, l, answers)
		say(t, l, runner.Message{Start: &runner.Start{Lease: lease, Granted: true}})
	}
	b := hear(t, l, func(m runner.Message) *runner.Beat {
		if m.Beat != nil && len(m.Beat.Leases) == 2 {
			return m.Beat
		}
		return nil
	})
	say(t, l, runner.Message{Pulse: &runner.Pulse{Seq: b.Seq, Alive: []string{"l2"}}})
	release := func(m runner.Message) *runner.Release { return m.Release }
	require.Equal(t, "l1", hear(t, l, release).Lease)
	say(t, l, runner.Message{Completed: &runner.Completed{Lease: "l1"}})
	require.NoError(t, l.Close())
	l = s.accept(runner.Welcome{}) // keeps nothing
	require.Equal(t, "l2", hear(t, l, release).Lease)
}

// TestCompletionIsRepeatedUntilAnswered across links and on one.
func TestCompletionIsRepeatedUntilAnswered(t *testing.T) {
	dir := t.TempDir()
	ex := newGate()
	ex.let()
	l, s, _ := script(t, dir, ex, runner.Welcome{})
	say(t, l, runner.Message{Offer: order("l1", 1, 1)})
	hear(t, l, answers)
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	complete := func(m runner.Message) *runner.Complete { return m.Complete }
	for range 2 {
		require.Equal(t, runner.Succeeded, hear(t, l, complete).Outcome)
	}
	require.NoError(t, l.Close())
	l = s.accept(runner.Welcome{Keep: []string{"l1"}})
	require.Equal(t, []byte("done\n"), hear(t, l, complete).Tail)
	require.Empty(t, entries(t, dir, runner.EntryClose))
	say(t, l, runner.Message{Completed: &runner.Completed{Lease: "l1", Accepted: true}})
	require.Eventually(t, func() bool { return len(entries(t, dir, runner.EntryClose)) == 1 }, soon, time.Millisecond)
}

// TestDirectoryIsTheAgentsAlone: a second process on the same directory is refused.
func TestDirectoryIsTheAgentsAlone(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, newGate(), runner.Welcome{})
	b, err := runner.NewAgent(runner.AgentConfig{Endpoints: []string{"x:1"}, Dialer: scripted{}, Dir: dir, Slots: 1, Executor: newGate()})
	require.NoError(t, err)
	require.ErrorContains(t, b.Run(t.Context()), "in use by another agent process")
}
