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
// the port was not held. A daemon that ends instead, or is not there in time, is an error.
func (n *Node) Restart(ctx context.Context) (gap time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, restartBound)
	defer cancel()
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
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", next.PID())) // of its network
		if err == nil && holds(string(text), n.ownCluster.Port()) {
			return time.Since(began), nil
		}
		if err := next.briefly(ctx); err != nil {
			return 0, fmt.Errorf("%s does not hold its port again: %w; see %s", n.Name, err, n.LogFile())
		}
	}
}

// holds tells whether a table of sockets has one that is bound to the port: its second column.
func holds(table string, port uint16) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
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
	p, err := startProcess(n.Name, n.binary, []string{"daemon", "--config", path}, n.env, n.dir, n.LogFile(), n.space, nil)
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
		if err := p.briefly(ctx); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s has no process in reserve: %w; see %s", n.Name, err, n.LogFile()), p.Kill())
		}
	}
}

// restartBound is far more than a start takes.
const restartBound = 30 * time.Second

// briefly waits a millisecond, or returns why there is nothing more to wait for.
func (p *Process) briefly(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done:
		return errors.New("it ended instead")
	case <-time.After(time.Millisecond):
		return nil
	}
}
