// The fleet's own calls to a daemon's API.

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/forgeyard/forgeyard/cluster/health"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// callBound bounds one call to a daemon.
const callBound = 10 * time.Second

// A Refusal is an answer that is no success.
type Refusal struct {
	Status  int // of HTTP
	message string
}

func (r *Refusal) Error() string { return r.message }

// call sends one request to a daemon and decodes the answer into resp (nil drops it).
func (n *Node) call(ctx context.Context, method, path string, req, resp any) error {
	return n.send(ctx, method, path, nil, req, resp)
}

// send is call with a header.
func (n *Node) send(ctx context.Context, method, path string, header http.Header, req, resp any) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	var body io.Reader
	if req != nil {
		b, err := json.Marshal(req)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, n.Endpoint()+path, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if answer.StatusCode >= 300 {
		return &Refusal{answer.StatusCode, fmt.Sprintf("%s: %s %s: %s: %s", n.Name, method, path, answer.Status, bytes.TrimSpace(text))}
	}
	if resp == nil {
		return nil
	}
	return json.Unmarshal(text, resp)
}

// Call sends one request to this daemon; req nil sends no body, resp nil drops the
// answer. A refusal is a *Refusal with the daemon's own words.
func (n *Node) Call(ctx context.Context, method, path string, req, resp any) error {
	return n.call(ctx, method, path, req, resp)
}

// Status asks one daemon how the cluster is.
func (n *Node) Status(ctx context.Context) (health.ClusterStatus, error) {
	var s health.ClusterStatus
	err := n.call(ctx, http.MethodGet, "/v1/cluster/status", nil, &s)
	return s, err
}

// WaitStatus polls a daemon's status until ok says so. When ctx ends first, or
// the daemon does, the error holds the last answer.
func (n *Node) WaitStatus(ctx context.Context, what string, ok func(health.ClusterStatus) bool) (health.ClusterStatus, error) {
	for {
		s, err := n.Status(ctx)
		if err == nil && ok(s) {
			return s, nil
		}
		select {
		case <-n.process().Done():
			return s, fmt.Errorf("%s ended with exit status %d; see %s", n.Name, n.process().ExitCode(), n.LogFile())
		case <-ctx.Done():
			return s, fmt.Errorf("wait for %s: %w; last answer of %s: %s %v (%v)", what, ctx.Err(), n.Name, s.Headline, s.Reasons, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Leader returns the daemon that leads, as seen by any that answers.
func (f *Fleet) Leader(ctx context.Context) (*Node, error) {
	for {
		for _, n := range f.Nodes() {
			if n.State() != "running" {
				continue
			}
			s, err := n.Status(ctx)
			if err != nil || s.Leader.Node != n.ID {
				continue
			}
			return n, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no daemon leads: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// RoleOwner returns the daemon on which a role is active now, and its epoch.
// above asks for an epoch higher than that.
func (f *Fleet) RoleOwner(ctx context.Context, role fsm.Role, above fsm.Epoch) (*Node, fsm.Epoch, error) {
	for {
		for _, n := range f.Nodes() {
			if n.State() != "running" {
				continue
			}
			s, err := n.Status(ctx)
			if err != nil || s.Leader.Node != n.ID {
				continue // only the leader knows whether a role is active
			}
			for _, row := range s.RoleRows {
				if row.Role != role || row.Active != health.Yes || row.Epoch <= above {
					continue
				}
				if owner := f.byID(row.Owner); owner != nil {
					return owner, row.Epoch, nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%s is not active above epoch %d: %w", role, above, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (f *Fleet) byID(id fsm.NodeID) *Node {
	for _, n := range f.Nodes() {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// ShellRun is a run of count jobs that each execute a shell script.
func ShellRun(name string, count int, script string) runner.RunSpec {
	spec := runner.RunSpec{Name: name}
	for i := range count {
		spec.Jobs = append(spec.Jobs, runner.JobSpec{
			Name: fmt.Sprintf("job-%04d", i+1), Argv: []string{"sh", "-c", script}, Timeout: runner.Duration(5 * time.Minute),
		})
	}
	return spec
}

// Submit sends a run to the i-th running daemon, counted round: any daemon takes it.
func (f *Fleet) Submit(ctx context.Context, i int, spec runner.RunSpec) (runner.Run, error) {
	return f.submit(ctx, i, nil, spec)
}

// SubmitKeyed is Submit under an idempotency key.
func (f *Fleet) SubmitKeyed(ctx context.Context, i int, key string, spec runner.RunSpec) (runner.Run, error) {
	return f.submit(ctx, i, http.Header{runner.IdempotencyHeader: {key}}, spec)
}

func (f *Fleet) submit(ctx context.Context, i int, header http.Header, spec runner.RunSpec) (runner.Run, error) {
	var up []*Node
	for _, n := range f.Nodes() {
		if n.State() == "running" {
			up = append(up, n)
		}
	}
	if len(up) == 0 {
		return runner.Run{}, fmt.Errorf("submit %s: no daemon runs", spec.Name)
	}
	var run runner.Run
	err := up[i%len(up)].send(ctx, http.MethodPost, "/v1/runs", header, spec, &run)
	return run, err
}
