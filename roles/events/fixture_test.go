// The fixture of these tests: a real database, writers of the outbox, and daemons' hubs behind HTTP servers.

package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/roles/events"
	"github.com/forgeyard/forgeyard/roles/store"
	"github.com/forgeyard/forgeyard/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const soon = 30 * time.Second

type plane struct {
	*testing.T
	db    *pgtest.Database
	super *pgx.Conn
	store *store.Store
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{T: t, db: pgtest.New(t)}
	var err error
	p.store, err = store.Open(t.Context(), store.Config{Owner: p.db.Owner, App: p.db.App, Direct: p.db.Direct, Cluster: cluster.NewClusterID()})
	require.NoError(t, err)
	t.Cleanup(p.store.Close)
	require.NoError(t, p.store.Migrate(t.Context()))
	p.super = p.session()
	return p
}

func (p *plane) session() *pgx.Conn {
	p.Helper()
	c, err := pgx.Connect(p.Context(), p.db.Super)
	require.NoError(p, err)
	p.Cleanup(func() { require.NoError(p, c.Close(context.WithoutCancel(p.Context()))) })
	return c
}

const insertSQL = `INSERT INTO forge.outbox (kind, run_id, data) VALUES ('test', nullif($1, ''), jsonb_build_object('n', $2::int))`

// write makes one event in a transaction of its own.
func (p *plane) write(run string, n int) {
	p.Helper()
	_, err := p.super.Exec(p.Context(), insertSQL, run, n)
	require.NoError(p, err)
}

// prune cuts the outbox as retention does.
func (p *plane) prune() {
	p.Helper()
	_, err := p.super.Exec(p.Context(), `ALTER TABLE forge.outbox DISABLE TRIGGER outbox_pruned; DELETE FROM forge.outbox; ALTER TABLE forge.outbox ENABLE TRIGGER outbox_pruned`)
	require.NoError(p, err)
}

// database runs batches by what stands here instead of in one go.
type database func(ctx context.Context, fill func(*pgx.Batch)) error

func (d database) Batch(ctx context.Context, fill func(*pgx.Batch)) error { return d(ctx, fill) }

// daemon is a hub with its bus behind an HTTP server.
type daemon struct {
	*httptest.Server
	hub *events.Hub
	bus *events.Bus
}

func (p *plane) daemon() *daemon {
	p.Helper()
	return p.daemonOn(p.store)
}

func (p *plane) daemonOn(db events.Database) *daemon {
	p.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	d := &daemon{bus: events.NewBus()}
	d.hub = events.NewHub(db, d.bus, nil)
	over := make(chan error, 1)
	go func() { over <- d.hub.Run(ctx) }()
	mux := http.NewServeMux()
	for _, r := range events.Routes(d.hub) {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	d.Server = httptest.NewServer(mux)
	p.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
		cancel()
		require.NoError(p, <-over)
	})
	return d
}

// message is one server-sent event as a client sees it.
type message struct {
	ID, Kind string
	N        int
}

// client follows a stream and remembers where it is.
type client struct {
	*plane
	path   string
	lastID string
	body   *bufio.Scanner
	cut    func()
}

func (c *client) connect(d *daemon) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+c.path, nil)
	require.NoError(c, err)
	if c.lastID != "" {
		req.Header.Set("Last-Event-ID", c.lastID)
	}
	resp, err := d.Client().Do(req)
	require.NoError(c, err)
	require.Equal(c, http.StatusOK, resp.StatusCode)
	c.body = bufio.NewScanner(resp.Body)
	c.cut = func() {
		cancel()
		_ = resp.Body.Close()
	}
}

// next returns the next event with data; ids without data only move the client on.
func (c *client) next() message {
	c.Helper()
	var m message
	data := ""
	for c.body.Scan() {
		line := c.body.Text()
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			c.lastID = m.ID
			if data != "" {
				var body struct {
					Data struct{ N int }
				}
				require.NoError(c, json.Unmarshal([]byte(data), &body))
				m.N = body.Data.N
				return m
			}
			m = message{}
		case key == "id":
			m.ID = value
		case key == "event":
			m.Kind = value
		case key == "data":
			data = value
		}
	}
	require.FailNow(c, "the stream ended", "%v", c.body.Err())
	return m
}

func runID(n int) string { return fmt.Sprintf("01K%023d", n) }
