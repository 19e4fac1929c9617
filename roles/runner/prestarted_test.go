// Supervisors that wait for a task.

package runner

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waiting returns the supervisor that waits for a task.
func (p *Prestarted) waiting(t *testing.T) (s *supervised) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		s = p.spare
		return s != nil
	}, 30*time.Second, time.Millisecond)
	return s
}

// TestPrestarted: a task gets the supervisor that waits, once; one that was
// killed while it waited costs nothing but time; none is left behind.
func TestPrestarted(t *testing.T) {
	p := NewPrestarted(Process{Supervisor: []string{os.Args[0], "supervise"}})
	supervisorOf := func() int {
		var out bytes.Buffer
		x := p.Run(t.Context(), Task{Lease: "l", Dir: t.TempDir(), Steps: []Step{{Argv: []string{"sh", "-c", "echo $PPID; pwd"}}}}, &out)
		require.NoError(t, x.Err)
		require.NotNil(t, x.Code, x)
		pid, _, _ := strings.Cut(out.String(), "\n")
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		return n
	}
	require.Nil(t, p.spare, "nothing is started before the first task")
	first := supervisorOf()
	s := p.waiting(t)
	require.NotEqual(t, first, s.cmd.Process.Pid)
	require.Equal(t, s.cmd.Process.Pid, supervisorOf())

	s = p.waiting(t)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGKILL))
	<-s.ended
	require.NotEqual(t, s.cmd.Process.Pid, supervisorOf())

	s = p.waiting(t)
	p.Close()
	<-s.ended
	require.NoError(t, s.err, "told that there is nothing more, it ends as if nothing were wrong")
	supervisorOf()
	require.False(t, p.filling, "a closed one starts none ahead")
}
