// An agent against a daemon that the test plays word by word: what it refuses, keeps, kills and repeats.

package runner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/roles/runner/runnertest"
)

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

// answerTo picks the answer to a lease's offer; acceptances of others are repeated at any time.
func answerTo(lease string) func(runner.Message) *runner.Answer {
	return func(m runner.Message) *runner.Answer {
		if m.Answer == nil || m.Answer.Lease != lease {
			return nil
		}
		return m.Answer
	}
}

func order(lease string, generation, epoch int) *runner.Offer {
	return &runner.Offer{Lease: lease, Role: 1, Generation: fsmGeneration(generation), Epoch: fsmEpoch(epoch), Job: "job-" + lease, Attempt: 1, Timeout: time.Hour, Steps: []runner.Step{{Argv: []string{"x"}}}}
}

// TestFencingClockHighWaterMark is the rule of refusal, offer by offer: generation before
// epoch, equal is admitted, and a restarted agent remembers.
func TestFencingClockHighWaterMark(t *testing.T) {
	dir := t.TempDir()
	ex := newGate()
	l, _, stop := script(t, dir, ex, runner.Welcome{})
	verdict := func(l runner.Link, lease string, generation, epoch int) runner.Verdict {
		say(t, l, runner.Message{Offer: order(lease, generation, epoch)})
		return hear(t, l, answerTo(lease)).Verdict
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
	require.Equal(t, runner.Accepted, verdict(l, "l5", 2, 1), "l2 had not begun and holds no slot any more")
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
	hear(t, l, answerTo("l1"))
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
		hear(t, l, answerTo(lease))
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
	hear(t, l, answerTo("l1"))
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
