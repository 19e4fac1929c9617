// An agent that takes nothing new: drained, stopping, or stuck.

package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

func releases(m runner.Message) *runner.Release { return m.Release }

// TestDrain: a draining agent finishes what it runs and gives what it is offered back unstarted.
func TestDrain(t *testing.T) {
	ex := newGate()
	l, _, _ := script(t, t.TempDir(), ex, runner.Welcome{})
	say(t, l, runner.Message{Offer: order("l1", 1, 1)})
	require.Equal(t, runner.Accepted, hear(t, l, answerTo("l1")).Verdict)
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	require.Eventually(t, func() bool { return ex.starts("l1") == 1 }, soon, time.Millisecond)
	say(t, l, runner.Message{Drain: &runner.Drain{On: true}})
	say(t, l, runner.Message{Offer: order("l2", 1, 1)})
	r := hear(t, l, releases)
	require.Equal(t, runner.Release{Lease: "l2", Reason: "the agent takes nothing new"}, r)
	ex.let()
	require.Equal(t, "l1", hear(t, l, completes).Lease)
	say(t, l, runner.Message{Drain: &runner.Drain{}})
	say(t, l, runner.Message{Offer: order("l2", 1, 1)})
	require.Equal(t, runner.Accepted, hear(t, l, answerTo("l2")).Verdict)
	require.Zero(t, ex.starts("l2"))
}

// graceful runs an agent that has a grace against a script.
func graceful(t *testing.T, ex runner.Executor) (l runner.Link, a *runner.Agent, shut context.CancelFunc, ended <-chan struct{}) {
	t.Helper()
	s := scripted{t: t, links: make(chan runner.Link, 1)}
	timing := quick
	timing.Request = 300 * time.Millisecond
	a, err := runner.NewAgent(runner.AgentConfig{
		Endpoints: []string{"127.0.0.1:1"}, Dialer: s, Dir: t.TempDir(), Slots: 2, Executor: ex, Timing: timing, Grace: time.Hour,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); require.NoError(t, a.Run(ctx)) }()
	t.Cleanup(func() { a.Hurry(); cancel(); <-over })
	l = s.accept(runner.Welcome{})
	say(t, l, runner.Message{Offer: order("l1", 1, 1)})
	require.Equal(t, runner.Accepted, hear(t, l, answerTo("l1")).Verdict)
	say(t, l, runner.Message{Start: &runner.Start{Lease: "l1", Granted: true}})
	return l, a, cancel, over
}

// TestGrace: an agent that shall stop says so, finishes what it runs and reports
// it; hurried, it gives it up at once.
func TestGrace(t *testing.T) {
	t.Run("the job ends", func(t *testing.T) {
		ex := newGate()
		l, _, shut, over := graceful(t, ex)
		require.Eventually(t, func() bool { return ex.starts("l1") == 1 }, soon, time.Millisecond)
		shut()
		hear(t, l, func(m runner.Message) *runner.Beat {
			if m.Beat != nil && m.Beat.Closing && len(m.Beat.Leases) == 1 {
				return m.Beat
			}
			return nil
		})
		say(t, l, runner.Message{Offer: order("l2", 1, 1)})
		require.Equal(t, "l2", hear(t, l, releases).Lease)
		ex.let()
		require.Equal(t, runner.Succeeded, hear(t, l, completes).Outcome)
		say(t, l, runner.Message{Completed: &runner.Completed{Lease: "l1", Accepted: true}})
		<-over
	})
	t.Run("a second signal", func(t *testing.T) {
		ex := newGate()
		l, a, shut, over := graceful(t, ex)
		require.Eventually(t, func() bool { return ex.starts("l1") == 1 }, soon, time.Millisecond)
		shut()
		a.Hurry()
		r := hear(t, l, releases)
		require.Equal(t, runner.Release{Lease: "l1", Reason: "the agent is stopping", Started: true}, r)
		<-over
	})
}

// TestWorkIsShown: while its supervisor answers, an attempt's work counter
// rises; when the supervisor stands still, so does the counter, whatever the beats say.
func TestWorkIsShown(t *testing.T) {
	c := carry(t, t.TempDir(), newWarehouse(), processes())
	c.begin(shell("l1", "echo $PPID > pids; exec sleep 300"))
	work := func() uint64 {
		return hear(t, c.Link, func(m runner.Message) *runner.Progress {
			if m.Beat == nil || len(m.Beat.Leases) == 0 {
				return nil
			}
			return &m.Beat.Leases[0]
		}).Work
	}
	require.Eventually(t, func() bool { return work() > 5 }, soon, time.Nanosecond)
	supervisor := pids(t, filepath.Join(c.dir, "work", "l1", "job"), 1)[0]
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(supervisor) + "/stat")
		return err == nil && strings.Contains(string(b), ") T ")
	}, soon, time.Millisecond)
	for range 2 { // what it had answered before
		work()
	}
	still := work()
	for range 5 {
		require.Equal(t, still, work())
	}
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGCONT))
	require.Eventually(t, func() bool { return work() > still }, soon, time.Nanosecond)
}
