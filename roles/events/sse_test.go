// Streams: clients that change daemons, come late, stall, or are many.

package events_test

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/events"
)

// writeUntil makes numbered events until stop closes, and tells how many.
func (p *plane) writeUntil(stop <-chan struct{}, daemons ...*daemon) <-chan int {
	made := make(chan int, 1)
	c := p.session()
	go func() {
		n := 0
		defer func() { made <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.Exec(context.WithoutCancel(p.Context()), insertSQL, "", n+1); err != nil {
				p.Errorf("write: %v", err)
				return
			}
			n++
			for _, d := range daemons {
				d.bus.Notify(events.Work)
			}
		}
	}()
	return made
}

// A client whose connection is cut a hundred times, each time resuming on the
// other daemon, sees every event once (§112).
func TestReconnectBackfill(t *testing.T) {
	p := newPlane(t)
	daemons := []*daemon{p.daemon(), p.daemon()}
	c := &client{plane: p, path: "/v1/events"}
	c.connect(daemons[0])
	for c.lastID == "" { // from here on nothing may be lost
		require.True(t, c.body.Scan())
		if id, ok := cutPrefix(c.body.Text(), "id: "); ok {
			c.lastID = id
		}
	}
	stop := make(chan struct{})
	made := p.writeUntil(stop, daemons...)
	want := 1
	for cut := range 100 {
		for range 1 + cut%5 {
			m := c.next()
			require.Equal(t, want, m.N)
			want++
		}
		c.cut()
		c.connect(daemons[(cut+1)%2])
	}
	close(stop)
	for total := <-made; want <= total; want++ {
		require.Equal(t, want, c.next().N)
	}
	c.cut()
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

func TestRunEventsFromTheStart(t *testing.T) {
	p := newPlane(t)
	d := p.daemon()
	p.write(runID(1), 1)
	p.write(runID(2), 2)
	c := &client{plane: p, path: "/v1/runs/" + runID(1) + "/events"}
	c.connect(d)
	defer c.cut()
	require.Equal(t, 1, c.next().N)
	p.write(runID(2), 3)
	p.write(runID(1), 4)
	d.bus.Notify(events.Happens)
	require.Equal(t, 4, c.next().N)
}

func TestResyncAfterPrune(t *testing.T) {
	p := newPlane(t)
	d := p.daemon()
	at, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	p.write("", 1)
	_, err = p.super.Exec(t.Context(), `ALTER TABLE forge.outbox DISABLE TRIGGER outbox_pruned; DELETE FROM forge.outbox; ALTER TABLE forge.outbox ENABLE TRIGGER outbox_pruned`)
	require.NoError(t, err)
	c := &client{plane: p, path: "/v1/events", lastID: at.String()}
	c.connect(d)
	defer c.cut()
	require.Equal(t, "resync", c.next().Kind)
	p.write("", 2)
	d.bus.Notify(events.Happens)
	require.Equal(t, 2, c.next().N)
}

// A hub that nobody follows any more may be reading still when the next client
// comes; what it read does not make its empty ring look whole.
func TestClientsComeWhileTheHubReads(t *testing.T) {
	p := newPlane(t)
	reading, read := make(chan struct{}), make(chan struct{})
	var readings atomic.Int32 // of the hub
	var hold atomic.Bool      // hold the next one up
	d := p.daemonOn(database(func(ctx context.Context, fill func(*pgx.Batch)) error {
		err := p.store.Batch(ctx, fill)
		var whole pgx.Batch
		fill(&whole)
		if !slices.ContainsFunc(whole.QueuedQueries, func(q *pgx.QueuedQuery) bool { return slices.Contains(q.Arguments, any(512)) }) {
			return err // a client's
		}
		readings.Add(1)
		if hold.CompareAndSwap(true, false) {
			close(reading)
			<-read
		}
		return err
	}))
	more := func() {
		t.Helper()
		before := readings.Load()
		require.Eventually(t, func() bool { return readings.Load() > before+1 }, soon, time.Millisecond)
	}
	start, err := events.Head(t.Context(), p.store)
	require.NoError(t, err)
	p.write("", 1)
	first := &client{plane: p, path: "/v1/events"}
	first.connect(d)
	more()
	p.write("", 2)
	more()

	hold.Store(true) // the ring begins after the first event
	p.write("", 3)
	d.bus.Notify(events.Work)
	p.wait(reading, "the hub reads")
	first.cut()
	require.Eventually(t, func() bool { return d.hub.Clients() == 0 }, soon, time.Millisecond)
	second := &client{plane: p, path: "/v1/events"}
	second.connect(d)
	defer second.cut()
	close(read)
	more()
	third := &client{plane: p, path: "/v1/events", lastID: start.String()}
	third.connect(d)
	defer third.cut()
	for n := range 3 {
		require.Equal(t, n+1, third.next().N)
	}
}

// Five hundred clients cost memory once; one that never reads costs its own connection.
func TestManyClientsOneStalled(t *testing.T) {
	p := newPlane(t)
	d := p.daemon()
	const clients, events = 500, 80
	stalled, err := net.Dial("tcp", d.Listener.Addr().String())
	require.NoError(t, err)
	defer stalled.Close()
	_, err = stalled.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.NoError(t, err)

	all := make([]*client, clients)
	for i := range all {
		all[i] = &client{plane: p, path: "/v1/events"}
		all[i].connect(d)
		defer all[i].cut()
	}
	require.Eventually(t, func() bool { return d.hub.Clients() == clients+1 }, soon, time.Millisecond)
	for _, c := range all { // each has its place
		for c.lastID == "" {
			require.True(t, c.body.Scan())
			if id, ok := cutPrefix(c.body.Text(), "id: "); ok {
				c.lastID = id
			}
		}
	}
	before := heap()
	_, err = p.super.Exec(t.Context(), `INSERT INTO forge.outbox (kind, data) SELECT 'test', jsonb_build_object('n', n, 'pad', repeat('x', 4000)) FROM generate_series(1, $1) n`, events)
	require.NoError(t, err)
	d.bus.Notify("work")
	for _, c := range all {
		for n := range events {
			require.Equal(t, n+1, c.next().N)
		}
	}
	grown := int64(heap()) - int64(before)
	require.Less(t, grown, int64(64<<20), "%d clients behind %d events of 4 kB grew the heap by %d bytes", clients, events, grown)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestMalformedCursorIsRefused(t *testing.T) {
	p := newPlane(t)
	d := p.daemon()
	for _, path := range []string{"/v1/events?after=nonsense", "/v1/runs/" + runID(1) + "/events?after=AQ"} {
		resp, err := http.Get(d.URL + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	}
	resp, err := http.Get(d.URL + "/v1/runs/nonsense/events")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}
