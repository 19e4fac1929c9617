// A daemon's death and another one's life on the same port within milliseconds.

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Restart ends the daemon with SIGKILL and has a process take its place that
// was started before and waits for its configuration: the start of a program
// alone takes longer than a port may be free. It returns for how long, at most,
// the port was not held.
func (n *Node) Restart(ctx context.Context) (gap time.Duration, err error) {
	config, err := os.ReadFile(n.configFile())
	if err != nil {
		return 0, err
	}
	next, pipe, err := n.reserve(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now() // the kernel frees the port before it says that the process has ended
	err = n.Kill()
	if err == nil {
		_, err = pipe.Write(config)
	}
	if err := errors.Join(err, pipe.Close()); err != nil {
		return 0, errors.Join(err, next.Kill())
	}
	n.mu.Lock()
	n.proc, n.paused = next, false
	n.mu.Unlock()
	port := fmt.Sprintf(":%04X ", n.ownCluster.Port())
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", next.PID())) // of its network
		if err == nil && strings.Contains(string(text), port) {
			return time.Since(began), nil
		}
		if err := briefly(ctx); err != nil {
			return 0, fmt.Errorf("%s does not hold its port again: %w", n.Name, err)
		}
	}
}

// reserve starts a daemon that reads its configuration from the returned pipe, and waits until it does.
func (n *Node) reserve(ctx context.Context) (*Process, *os.File, error) {
	path := filepath.Join(n.dir, "reserve.ron")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, nil, fmt.Errorf("make %s: %w", path, err)
	}
	p, err := startProcess(n.Name, n.binary, []string{"daemon", "--config", path}, n.env, n.dir, n.LogFile(), n.space)
	if err != nil {
		return nil, nil, err
	}
	for {
		pipe, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			return p, pipe, nil
		}
		if !errors.Is(err, unix.ENXIO) { // ENXIO: nobody reads yet
			return nil, nil, errors.Join(err, p.Kill())
		}
		if err := briefly(ctx); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s has no process in reserve: %w", n.Name, err), p.Kill())
		}
	}
}

// briefly waits a millisecond, or returns why there is no more time.
func briefly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}
