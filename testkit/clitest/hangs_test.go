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
)

// stopsWithin is how long a daemon or an agent may take to end, beyond what it says.
const stopsWithin = 20 * time.Second

// One signal ends every command, whatever file it hangs at: a pipe to which nobody writes
// stands for a file system that does not answer. Those of processes say where they hang.
func TestOneSignalEndsWhatHangs(t *testing.T) {
	exe := product(t)
	var ended sync.WaitGroup
	for name, c := range map[string]struct {
		args  func(t *testing.T, s *site, pipe string) []string
		code  int
		after time.Duration
		says  string
	}{
		"daemon's configuration": {func(_ *testing.T, _ *site, pipe string) []string {
			return []string{"daemon", "--config", pipe}
		}, 70, stopsWithin, "reading the configuration"},
		"daemon's join token": {func(t *testing.T, s *site, pipe string) []string {
			return []string{"daemon", "--config", s.config(t), "--join-token-file", pipe}
		}, 70, stopsWithin, "reading the join token"},
		"daemon's certificate": {func(t *testing.T, s *site, pipe string) []string {
			s.Cert = pipe
			return []string{"daemon", "--config", s.config(t)}
		}, 70, stopsWithin, "opening sockets and files"},
		"agent's certificate": {func(_ *testing.T, s *site, pipe string) []string {
			return []string{"agent", "--cert", pipe, "--key", s.Key, "--ca", s.CA, "--grace", "1s"}
		}, 70, stopsWithin + time.Second, "reading the certificate"},
		"run's file": {func(_ *testing.T, _ *site, pipe string) []string {
			return []string{"run", "submit", pipe}
		}, 130, 0, "interrupted"},
	} {
		s := newSite(t, exe)
		pipe, out := filepath.Join(s.dir, "pipe"), filepath.Join(s.dir, "out")
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		p, err := fleet.StartProcess(name, exe, c.args(t, s, pipe), nil, s.dir, out)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Kill()) })
		eventually(t, name+" is read", func() bool { // its other end cannot be opened before
			silent, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				t.Cleanup(func() { require.NoError(t, silent.Close()) })
			}
			return err == nil
		})
		told := time.Now()
		require.NoError(t, p.Signal(syscall.SIGTERM))
		ended.Go(func() {
			assert.Equal(t, c.code, p.ExitCode(), name)
			assert.GreaterOrEqual(t, time.Since(told), c.after, name)
			assert.Less(t, time.Since(told), c.after+slack*5*time.Second, name)
			text, err := os.ReadFile(out)
			assert.NoError(t, err)
			assert.Contains(t, string(text), c.says)
			assert.Equal(t, c.code == 70, strings.Contains(string(text), "FY-STOP-001"), name)
		})
	}
	ended.Wait()
}
