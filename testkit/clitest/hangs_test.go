// Commands that hang before their work begins, and are told to end.

package clitest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// stopsWithin is how long a daemon or an agent may take to end, beyond what it says.
const stopsWithin = 20 * time.Second

// hang is a command that reads a pipe to which nobody writes, as it would a file system
// that does not answer, and is told to end by as many signals.
type hang struct {
	name    string
	args    func(t *testing.T, s *site, pipe string) []string
	signals int
	after   time.Duration // that it ends, once told
	code    int           // -1: by the signal
	says    string
}

// Processes end in time at the first signal and say where they hang, and at the next one
// at once; all other commands end at the first.
var hangs = []hang{
	{"daemon's configuration", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"daemon", "--config", pipe}
	}, 1, stopsWithin, 70, "reading the configuration"},
	{"daemon's configuration, told twice", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"daemon", "--config", pipe}
	}, 2, 0, -1, ""},
	{"daemon's join token", func(t *testing.T, s *site, pipe string) []string {
		return []string{"daemon", "--config", s.config(t), "--join-token-file", pipe}
	}, 1, stopsWithin, 70, "reading the join token"},
	{"daemon's certificate", func(t *testing.T, s *site, pipe string) []string {
		s.Cert = pipe
		return []string{"daemon", "--config", s.config(t)}
	}, 1, stopsWithin, 70, "opening sockets and files"},
	{"agent's certificate", func(_ *testing.T, s *site, pipe string) []string {
		return []string{"agent", "--cert", pipe, "--key", s.Key, "--ca", s.CA, "--grace", "1s"}
	}, 1, stopsWithin + time.Second, 70, "reading the certificate"},
	{"agent's certificate, told twice", func(_ *testing.T, s *site, pipe string) []string {
		return []string{"agent", "--cert", pipe, "--key", s.Key, "--ca", s.CA, "--grace", "1s"}
	}, 2, 0, -1, ""},
	{"agent's directory", agentOn, 1, stopsWithin + time.Second, 70, "opening the agent's directory"},
	{"agent's directory, told twice", agentOn, 2, stopsWithin, 70, "opening the agent's directory"},
	{"agent's directory, told three times", agentOn, 3, 0, -1, ""},
	{"run's file", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"run", "submit", pipe}
	}, 1, 0, 130, "interrupted"},
	{"certificate of a command", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"run", "exec", "--cert", pipe, "--cert-key", pipe, "--", "true"}
	}, 1, 0, 130, "interrupted"},
	{"configuration that is checked", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"config", "check", pipe}
	}, 1, 0, 130, "interrupted"},
	{"certificate of a node", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"cluster", "add", pipe}
	}, 1, 0, 130, "interrupted"},
	{"key of the authority", func(t *testing.T, s *site, pipe string) []string {
		require.NoError(t, os.Symlink(pipe, filepath.Join(s.dir, pki.CAKeyFile))) // beside ca.crt
		return []string{"pki", "issue", "agent", "a", "--dir", s.dir}
	}, 1, 0, 130, "interrupted"},
	{"token of a command", func(_ *testing.T, _ *site, pipe string) []string {
		return []string{"cluster", "status", "--token-file", pipe}
	}, 1, 0, 130, "interrupted"},
}

// agentOn is an agent in whose directory a file hangs.
func agentOn(t *testing.T, s *site, pipe string) []string {
	cert, key := s.issue(t, s.ca, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}, "agent", pki.Validity{})
	dir := filepath.Join(s.dir, "agent")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(pipe, filepath.Join(dir, "highwater.json")))
	return []string{"agent", "--cert", cert, "--key", key, "--ca", s.CA, "--grace", "1s", "--dir", dir, "--endpoints", s.Agents}
}

func TestSignalsEndWhatHangs(t *testing.T) {
	exe := product(t)
	var ended sync.WaitGroup
	for _, c := range hangs {
		s := newSite(t, exe)
		pipe, out := filepath.Join(s.dir, "pipe"), filepath.Join(s.dir, "out")
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		p, err := fleet.StartProcess(c.name, exe, c.args(t, s, pipe), nil, s.dir, out)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Kill()) })
		eventually(t, c.name+" is read", func() bool { // its other end cannot be opened before
			silent, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() { require.NoError(t, silent.Close()) })
			}
			return err == nil
		})
		told := time.Now()
		ended.Go(func() {
			for range c.signals {
				assert.NoError(t, p.Signal(syscall.SIGTERM), c.name)
				<-time.After(500 * time.Millisecond) // a signal that waits is one with the next
			}
			assert.Equal(t, c.code, p.ExitCode(), c.name)
			took, text := time.Since(told), contents(t, out)
			assert.GreaterOrEqual(t, took, c.after, c.name)
			assert.Less(t, took, c.after+slack*5*time.Second, c.name)
			assert.Contains(t, text, c.says, c.name)
			assert.Equal(t, c.code == 70, strings.Contains(text, "FY-STOP-001"), c.name)
		})
	}
	ended.Wait()
}

func contents(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	assert.NoError(t, err)
	return string(text)
}
