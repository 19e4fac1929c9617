// The fixture of an agent's carrier: a daemon that a test plays by hand, and the place where its bytes go.

package runner_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// warehouse plays the daemons' end of all transfers: blobs, stored outputs and logs in memory.
type warehouse struct {
	mu      sync.Mutex
	down    bool
	blobs   map[string][]byte
	outputs map[string]runner.Store
	logs    map[string][]byte
	final   map[string]bool
	repeats int             // chunks that did not begin where the log ends
	streams int             // opened
	cutLogs int             // that many log streams break after one chunk, before or after it is acknowledged
	puts    int             // outputs that came whole
	slow    []time.Duration // how long the next ones take to be stored, once they have come
}

func newWarehouse() *warehouse {
	return &warehouse{blobs: map[string][]byte{}, outputs: map[string]runner.Store{}, logs: map[string][]byte{}, final: map[string]bool{}}
}

func (w *warehouse) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *warehouse) setDown(down bool) { w.locked(func() { w.down = down }) }

// keep stores a tree as a blob and returns its digest.
func (w *warehouse) keep(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o700))
	}
	var b bytes.Buffer
	_, err := artifact.PackZstd(t.Context(), dir, nil, artifact.Limits{}, &b)
	require.NoError(t, err)
	digest := artifact.DigestOf(b.Bytes()).String()
	w.locked(func() { w.blobs[digest] = b.Bytes() })
	return digest
}

// ServeTransfer implements runner.TransferServer.
func (w *warehouse) ServeTransfer(ctx context.Context, _ string, open runner.Transfer, s runner.TransferStream) error {
	w.mu.Lock()
	w.streams++
	down := w.down
	w.mu.Unlock()
	if down {
		return s.Send(ctx, runner.Frame{Refused: &runner.Refused{Code: "FY-CAS-001", Reason: "the artifact store cannot be reached", Retry: true}})
	}
	switch {
	case open.Fetch != nil:
		return w.fetch(ctx, *open.Fetch, s)
	case open.Store != nil:
		return w.store(ctx, *open.Store, s)
	}
	return w.log(ctx, open.Log.Lease, s)
}

func (w *warehouse) fetch(ctx context.Context, f runner.Fetch, s runner.TransferStream) error {
	w.mu.Lock()
	b, ok := w.blobs[f.Digest]
	w.mu.Unlock()
	if !ok {
		return s.Send(ctx, runner.Frame{Refused: &runner.Refused{Code: "FY-CAS-003", Reason: "no such blob"}})
	}
	if err := s.Send(ctx, runner.Frame{Ready: &runner.Ready{Size: int64(len(b))}}); err != nil {
		return err
	}
	if _, err := s.SendAll(ctx, bytes.NewReader(b)); err != nil {
		return err
	}
	return s.Send(ctx, runner.Frame{End: &runner.End{}})
}

func (w *warehouse) store(ctx context.Context, st runner.Store, s runner.TransferStream) error {
	if err := s.Send(ctx, runner.Frame{Ready: &runner.Ready{}}); err != nil {
		return err
	}
	r := s.Reader(ctx)
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if digest := artifact.DigestOf(b).String(); digest != st.Digest || digest != r.End().Digest || int64(len(b)) != st.Size {
		return errors.New("not what was promised")
	}
	var takes time.Duration
	w.locked(func() {
		if w.puts++; len(w.slow) > 0 {
			takes, w.slow = w.slow[0], w.slow[1:]
		}
	})
	<-time.After(takes)
	w.locked(func() { w.blobs[st.Digest], w.outputs[st.Name] = b, st })
	return s.Send(ctx, runner.Frame{Done: &runner.Done{}})
}

func (w *warehouse) log(ctx context.Context, lease string, s runner.TransferStream) error {
	var have int64
	w.locked(func() { have = int64(len(w.logs[lease])) })
	if err := s.Send(ctx, runner.Frame{Ready: &runner.Ready{Offset: have}}); err != nil {
		return err
	}
	for {
		f, err := s.Receive(ctx)
		switch {
		case err != nil:
			return err
		case f.End != nil:
			w.locked(func() { w.final[lease] = int64(len(w.logs[lease])) == f.End.Size })
			return s.Send(ctx, runner.Frame{Done: &runner.Done{}})
		}
		var cut int
		w.locked(func() {
			if f.Chunk.Offset != int64(len(w.logs[lease])) {
				w.repeats++
				return
			}
			w.logs[lease] = append(w.logs[lease], f.Chunk.Data...)
			have = int64(len(w.logs[lease]))
			if cut = w.cutLogs; cut > 0 {
				w.cutLogs--
			}
		})
		if cut%2 == 1 {
			return errors.New("cut before the acknowledgement")
		}
		if err := s.Send(ctx, runner.Frame{Ack: &runner.Ack{Offset: have}}); err != nil || cut > 0 {
			return err
		}
	}
}

// theLog waits until a lease's log is final and returns it.
func (w *warehouse) theLog(t *testing.T, lease string) string {
	t.Helper()
	var log string
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		log = string(w.logs[lease])
		return w.final[lease]
	}, soon, 5*time.Millisecond, "the log of %s is never final", lease)
	return log
}

// carried is a scripted daemon whose transfers a warehouse serves.
type carried struct {
	*testing.T
	runner.Link
	*warehouse
	scripted
	dir  string
	stop func()
}

// carry runs an agent that executes processes against a scripted daemon and a warehouse.
func carry(t *testing.T, dir string, w *warehouse, ex runner.Executor) *carried {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	transfers := runner.NewSessions(runner.SessionsConfig{Transfers: w, Timing: quick}) // without links
	serve := func(f runner.Frames) {
		serving.Go(func() {
			defer f.Close()
			defer context.AfterFunc(ctx, f.Close)()
			_ = transfers.ServeStream(ctx, "a", f) // the agent sees the stream end
		})
	}
	t.Cleanup(func() { cancel(); serving.Wait() })
	s := scripted{t: t, links: make(chan runner.Link, 1), serve: serve}
	l, stop := s.run(dir, ex, runner.Welcome{TTL: quick.LeaseTTL, Every: 50 * time.Millisecond})
	p := &pumped{Link: l, in: make(chan runner.Message, 1<<14)}
	serving.Go(p.pump) // ends with the link, and that with the agent
	t.Cleanup(stop)
	return &carried{T: t, Link: p, warehouse: w, scripted: s, dir: dir, stop: stop}
}

// pumped is a daemon's end of a link that takes everything at once and answers
// heartbeats, however long the test looks elsewhere.
type pumped struct {
	runner.Link
	in chan runner.Message
}

func (p *pumped) pump() {
	defer close(p.in)
	for {
		m, err := p.Link.Receive(context.Background())
		if err != nil {
			return
		}
		if m.Beat != nil {
			pulse := &runner.Pulse{Seq: m.Beat.Seq}
			for _, l := range m.Beat.Leases {
				pulse.Alive = append(pulse.Alive, l.Lease)
			}
			_ = p.Send(context.Background(), runner.Message{Pulse: pulse}) // a broken link shows in Receive
		}
		p.in <- m
	}
}

func (p *pumped) Receive(ctx context.Context) (runner.Message, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return m, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return runner.Message{}, ctx.Err()
	}
}

// begin offers and starts a lease.
func (c *carried) begin(o *runner.Offer) {
	c.Helper()
	say(c.T, c.Link, runner.Message{Offer: o})
	require.Equal(c, runner.Accepted, hear(c.T, c.Link, answerTo(o.Lease)).Verdict)
	say(c.T, c.Link, runner.Message{Start: &runner.Start{Lease: o.Lease, Granted: true}})
}

// ends waits for the completion of the attempt that runs.
func (c *carried) ends() runner.Complete {
	c.Helper()
	return hear(c.T, c.Link, completes)
}

func completes(m runner.Message) *runner.Complete { return m.Complete }

func shell(lease, script string) *runner.Offer {
	o := order(lease, 1, 1)
	o.Steps = []runner.Step{{Argv: []string{"sh", "-c", script}}}
	return o
}
