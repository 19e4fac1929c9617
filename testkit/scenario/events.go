// A client of the event stream that loses its daemon again and again, and what it must have been told.

package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/events"
)

// Listener follows GET /v1/events from daemon to daemon.
type Listener struct {
	w *World

	mu    sync.Mutex
	first string // the id with which the first stream began
	heard []heard
	drop  context.CancelFunc // of the stream that is open
	lost  int                // streams that ended
}

// heard is one event as the client got it, or one row of the outbox.
type heard struct {
	XID  uint64
	Seq  int64
	Kind string
	Data string
}

// Listen begins to follow the events, until the end of the test.
func Listen(t testing.TB, w *World) *Listener {
	l := &Listener{w: w}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { l.run(ctx) })
	t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	eventually(t, "the event stream is open", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.first != ""
	})
	return l
}

// run opens one stream after the other, each on another daemon.
func (l *Listener) run(ctx context.Context) {
	var last string
	for i := 0; ctx.Err() == nil; i++ {
		nodes := l.w.Nodes()
		one, drop := context.WithCancel(ctx)
		l.mu.Lock()
		l.drop = drop
		l.mu.Unlock()
		opened := l.stream(one, nodes[i%len(nodes)].Endpoint(), &last)
		drop()
		l.mu.Lock()
		if opened {
			l.lost++
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stream reads until the stream breaks. last is the id to go on after.
func (l *Listener) stream(ctx context.Context, endpoint string, last *string) (opened bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/v1/events", nil)
	if err != nil {
		return false
	}
	if *last != "" {
		req.Header.Set("Last-Event-ID", *last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false
	}
	id, data := *last, ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "data":
			data = value
		case "": // the end of a message; one that broke off before it did not happen
			l.take(id, data)
			*last, data = id, ""
		}
	}
	return true
}

func (l *Listener) take(id, data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = id
	}
	if data == "" {
		return // a heartbeat
	}
	var m struct {
		Kind string
		Data json.RawMessage
	}
	c, err := events.ParseCursor(id)
	if err == nil {
		err = json.Unmarshal([]byte(data), &m)
	}
	if err != nil {
		m.Kind = "malformed: " + err.Error()
	}
	l.heard = append(l.heard, heard{c.XID, c.Seq, m.Kind, string(m.Data)})
}

// Cut drops the connection; the client goes on with another daemon.
func (l *Listener) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// Check requires that the client was told every event that was written since it
// began, once and in order, although it lost its daemon at least atLeast times,
// and that each grant of the scheduler's role was told once, under a higher epoch.
func (l *Listener) Check(t testing.TB, atLeast int) {
	start, err := events.ParseCursor(l.first)
	require.NoError(t, err)
	const rows = `SELECT xid::text::bigint, seq, kind, '' FROM forge.outbox WHERE (xid, seq) > ($1::text::xid8, $2) ORDER BY xid, seq`
	var want, got []heard
	read := func() bool {
		l.w.database(t, func(ctx context.Context, c *pgx.Conn) {
			found, err := c.Query(ctx, rows, strconv.FormatUint(start.XID, 10), start.Seq)
			require.NoError(t, err)
			want, err = pgx.CollectRows(found, pgx.RowToStructByPos[heard])
			require.NoError(t, err)
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		got = append([]heard(nil), l.heard...)
		return len(got) >= len(want)
	}
	eventually(t, "the client has heard everything", read)
	require.Equal(t, places(want), places(got))
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("%d events over %d streams", len(got), l.lost+1)
	require.GreaterOrEqual(t, l.lost, atLeast, "the client was hardly disturbed")
	var before, grants uint64
	for _, h := range got {
		if h.Kind != "role.granted" {
			continue
		}
		var g struct {
			Role  string
			Epoch uint64
		}
		require.NoError(t, json.Unmarshal([]byte(h.Data), &g), h.Data)
		if g.Role == role.String() {
			require.Greater(t, g.Epoch, before, "a grant was told twice, or out of order")
			before, grants = g.Epoch, grants+1
		}
	}
	require.Positive(t, grants, "no grant was told")
}

// places are the events without their data, whose text form is the database's own.
func places(all []heard) []heard {
	out := make([]heard, len(all))
	for i, h := range all {
		out[i] = heard{XID: h.XID, Seq: h.Seq, Kind: h.Kind}
	}
	return out
}
