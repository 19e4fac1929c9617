// An agent's next process, and what the one before it left running.

package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/runner"
)

// TestRestartedAgentWaitsForTheDead: a new process gives a lease up only once
// nothing of the old process's work runs, and clears its directories away, also
// those that the job has locked.
func TestRestartedAgentWaitsForTheDead(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "work", "l1", "job", "locked")
	require.NoError(t, os.MkdirAll(left, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(left, "file"), nil, 0o600))
	require.NoError(t, os.Chmod(left, 0))
	appendNew(t, dir, runner.Entry{What: runner.EntryStart, Lease: "l1", Job: "job", Attempt: 1})
	guard, err := os.OpenFile(filepath.Join(dir, "work.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer guard.Close()
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_SH)) // a supervisor of the old process

	s := scripted{t: t, links: make(chan runner.Link, 1)}
	a, err := runner.NewAgent(runner.AgentConfig{Endpoints: []string{"127.0.0.1:1"}, Dialer: s, Dir: dir, Slots: 1, Executor: newGate(), Timing: quick})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); require.NoError(t, a.Run(ctx)) }()
	t.Cleanup(func() { cancel(); <-over })
	select {
	case <-s.links:
		require.Fail(t, "it links, and gives the lease up, while the old work may run")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_UN))
	l := s.accept(runner.Welcome{Keep: []string{"l1"}})
	require.Equal(t, runner.Release{Lease: "l1", Reason: "the agent process that ran it ended", Started: true}, hear(t, l, releases))
	require.NoDirExists(t, filepath.Join(dir, "work", "l1"))
	say(t, l, runner.Message{Completed: &runner.Completed{Lease: "l1", Accepted: true}})
}

// appendNew is appendEntry in a directory that no agent has used.
func appendNew(t *testing.T, dir string, e runner.Entry) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, runner.StartsFile), nil, 0o600))
	appendEntry(t, dir, e)
}
