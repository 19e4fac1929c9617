// The watcher: a shell that outlives this process and ends the server when this process dies without doing so.

package postgres

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// watchScript blocks on its standard input, whose other end only this process
// holds. "done" means the server was ended in order; end of file means this
// process died: the postmaster (found by its own pid file, for it may have been
// started a moment ago) gets SIGQUIT. Either way the directories in $@ go.
// A process-death signal of the kernel would not do: it is tied to the thread
// that forked, and the Go runtime ends threads.
const watchScript = `trap '' INT TERM HUP
data=$1; shift
read -r word
if [ "$word" != done ]; then
  for try in 1 2 3 4 5 6 7 8 9 10; do
    pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) && [ -n "$pid" ] && break
    sleep 0.2
  done
  if [ -n "$pid" ]; then
    kill -CONT "$pid" 2>/dev/null
    kill -QUIT "$pid" 2>/dev/null
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  fi
fi
for dir in "$@"; do rm -rf "$dir"; done
`

type watcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startWatcher(data string, remove []string) (*watcher, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("server watcher: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchScript, "forgeyard-postgres-watcher", data}, remove...)...)
	cmd.Dir, cmd.Stdin = "/", r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("server watcher: %w", err), w.Close())
	}
	return &watcher{cmd: cmd, in: w}, nil
}

// dismiss ends the watcher after the server ended, and with it the directories it was to remove.
func (w *watcher) dismiss() error {
	_, werr := io.WriteString(w.in, "done\n")
	if err := errors.Join(werr, w.in.Close(), w.cmd.Wait()); err != nil {
		return fmt.Errorf("server watcher: %w", err)
	}
	return nil
}

// childrenOf lists the direct children of a process.
func childrenOf(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, fmt.Errorf("children of %d: %w", pid, err)
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("children of %d: %w", pid, err)
		}
		pids = append(pids, n)
	}
	return pids, nil
}
