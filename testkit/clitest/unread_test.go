// Processes whose log nobody reads.

package clitest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// unread makes file a pipe that is full: each write to it waits for ever.
func unread(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	fd, err := syscall.Open(file, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(fd)) })
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 512))
	}
	require.True(t, errors.Is(err, syscall.EAGAIN), "%v", err)
}

// A log that nobody reads stops neither a daemon's work nor its end.
func TestDaemonWhoseLogNobodyReads(t *testing.T) {
	t.Parallel()
	s := newSite(t, product(t))
	unread(t, s.log())
	d := s.start(t, "--bootstrap").leads()
	require.NoError(t, d.Signal(syscall.SIGTERM))
	require.Zero(t, d.ExitCode())
}

func TestAgentWhoseLogNobodyReads(t *testing.T) {
	t.Parallel()
	s := newSite(t, product(t))
	out, dir := filepath.Join(s.dir, "out"), filepath.Join(s.dir, "agent")
	unread(t, out)
	cert, key := s.issue(t, s.ca, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}, "agent", pki.Validity{})
	args := []string{"agent", "--cert", cert, "--key", key, "--ca", s.CA, "--dir", dir, "--endpoints", s.Agents}
	p, err := fleet.StartProcess("agent", s.exe, args, nil, s.dir, out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	eventually(t, "it runs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "lock"))
		return err == nil
	})
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Zero(t, p.ExitCode())
}
