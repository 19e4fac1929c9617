// Crashing an actor inside a running daemon, and watching a daemon end by itself.

package fleet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/forgeyard/forgeyard/actors"
)

// CrashEnv allows a daemon's actors to be crashed; give it in Options.Env.
const CrashEnv = "FORGEYARD_CRASH=1"

// CheapJobs lets agents run jobs without a supervisor: for fleets that are tested
// with many leases, and whose jobs are known to stay in their process group.
const CheapJobs = "FORGEYARD_UNSUPERVISED=1"

// Crash makes the actor at path of this daemon panic at its next message. The
// daemon must run with CrashEnv.
func (n *Node) Crash(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	socket := filepath.Join(n.DataDir(), "admin.sock")
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://admin/v1/debug/crash?path="+url.QueryEscape(path), nil)
	if err != nil {
		return err
	}
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("crash %s of %s: %w", path, n.Name, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil || answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("crash %s of %s: %s: %s (%v)", path, n.Name, answer.Status, text, err)
	}
	return nil
}

// Actors asks the daemon for its actors and loops.
func (n *Node) Actors(ctx context.Context) (actors.Forest, error) {
	var f actors.Forest
	err := n.call(ctx, http.MethodGet, "/v1/cluster/actors", nil, &f)
	return f, err
}

// WaitExit returns the daemon's exit status once it ended by itself; -1 when a signal ended it.
func (n *Node) WaitExit(ctx context.Context) (int, error) {
	p := n.process()
	select {
	case <-p.Done():
		return p.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s still runs: %w", n.Name, ctx.Err())
	}
}
