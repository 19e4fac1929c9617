//go:build chaos

// The clients of a chaos run: they submit under idempotency keys, try again elsewhere, cancel, and note what they were told.

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/forgeyard/forgeyard/roles/runner"
	"github.com/forgeyard/forgeyard/testkit/fleet"
	"github.com/forgeyard/forgeyard/testkit/history"
)

// Bounds of a client's work.
const (
	clientCall  = 5 * time.Second // one request
	clientPause = 200 * time.Millisecond
	fullQueue   = 400 // jobs that wait; more are not submitted meanwhile
	cancelEvery = 25  // one run of so many is cancelled
	sourceEvery = 4   // one run of so many has a source
)

// client submits the pipelines of one chaos run.
type client struct {
	t      *testing.T
	f      *fleet.Fleet
	source string
	rand   io.Reader // keys

	mu        sync.Mutex
	outcomes  map[uuid.UUID]history.Outcome // what each key's client was told in the end
	runs      map[int]string                // pipeline → its run
	cancelled []string                      // runs
	repeats   int                           // submissions that had to be sent again
}

func newClient(t *testing.T, f *fleet.Fleet, seed uint64, source string) *client {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &client{t: t, f: f, source: source, rand: rand.NewChaCha8(key), outcomes: map[uuid.UUID]history.Outcome{}, runs: map[int]string{}}
}

// submitAll spreads the pipelines over a time, and holds back while the queue is
// full. It returns how many it submitted: all, unless ctx ends.
func (c *client) submitAll(ctx context.Context, pipelines int, over time.Duration) int {
	start := time.Now()
	for i := range pipelines {
		due := start.Add(over * time.Duration(i) / time.Duration(pipelines))
		for ctx.Err() == nil && (time.Now().Before(due) || c.queueIsFull(ctx)) {
			wait(ctx, clientPause)
		}
		if ctx.Err() != nil || !c.submit(ctx, i) {
			return i
		}
	}
	return pipelines
}

// queueIsFull asks the database; while that is away nobody is held back by it.
func (c *client) queueIsFull(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, clientCall)
	defer done()
	var waiting int
	err := c.f.Query(ctx, `SELECT count(*) FROM forge.jobs WHERE state = 'queued'`, nil, &waiting)
	return err == nil && waiting > fullQueue
}

// submit sends one pipeline until a daemon takes or refuses it.
func (c *client) submit(ctx context.Context, i int) bool {
	key, err := uuid.NewRandomFromReader(c.rand)
	if err != nil {
		c.t.Errorf("draw a key: %v", err)
		return false
	}
	source := ""
	if i%sourceEvery == 0 {
		source = c.source
	}
	c.note(key, history.Unknown)
	for try := 0; ctx.Err() == nil; try++ {
		var run runner.Run
		status, err := c.call(ctx, i+try, "/v1/runs", key.String(), Pipeline(i, source), &run)
		switch {
		case err == nil && history.Answered(status) == history.Acknowledged:
			c.note(key, history.Acknowledged)
			c.mu.Lock()
			c.runs[i] = run.ID
			c.repeats += try
			c.mu.Unlock()
			if i%cancelEvery == cancelEvery-1 {
				return c.cancel(ctx, run.ID)
			}
			return true
		case err == nil && history.Answered(status) == history.Rejected:
			c.note(key, history.Rejected)
			c.t.Errorf("pipeline %d was refused with status %d", i, status)
			return false
		}
		wait(ctx, clientPause)
	}
	return false
}

// cancel asks for the end of a run until a daemon has heard it.
func (c *client) cancel(ctx context.Context, run string) bool {
	c.mu.Lock()
	c.cancelled = append(c.cancelled, run)
	c.mu.Unlock()
	for try := 0; ctx.Err() == nil; try++ {
		status, err := c.call(ctx, try, "/v1/runs/"+run+"/cancel", "", map[string]string{"reason": "part of the test"}, nil)
		if err == nil && status < 300 {
			return true
		}
		wait(ctx, clientPause)
	}
	return false
}

func (c *client) note(key uuid.UUID, outcome history.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[key] = outcome
}

// call posts to the i-th daemon, counted round, whatever its state.
func (c *client) call(ctx context.Context, i int, path, key string, body, answer any) (int, error) {
	ctx, done := context.WithTimeout(ctx, clientCall)
	defer done()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	nodes := c.f.Nodes()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, nodes[i%len(nodes)].Endpoint()+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set(runner.IdempotencyHeader, key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode >= 400 && resp.StatusCode < 500 {
		c.t.Logf("%s: %s: %s", path, resp.Status, strings.TrimSpace(string(said)))
	}
	if resp.StatusCode >= 300 || answer == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(said, answer); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return resp.StatusCode, nil
}

// wait returns after d or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
