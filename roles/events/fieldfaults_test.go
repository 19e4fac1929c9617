// Faults that fleets like this met in the field, by kind; testkit/FIELD_FAULTS.md lists them all.

package events_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/roles/events"
)

// deafConn is a connection whose peer's bytes stop arriving, without an error.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c deafConn) Read(p []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(p); err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}

// deafSessions opens sessions; the listening one, the first of each pair, can go deaf.
type deafSessions struct {
	dsn string

	mu     sync.Mutex
	opened int
	newest *atomic.Bool
}

func (d *deafSessions) Session(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		return nil, err
	}
	deaf := &atomic.Bool{}
	d.mu.Lock()
	if d.opened%2 == 0 {
		d.newest = deaf
	}
	d.opened++
	d.mu.Unlock()
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return deafConn{c, deaf}, nil
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// The listening session is half open: no notification, no error. The notifier
// misses its own word, listens on a new session, and wakes everyone, for
// anything may have been missed.
func TestFieldFaultPgConnection(t *testing.T) {
	t.Run("FB-064", func(t *testing.T) {
		p := newPlane(t)
		bus, db := events.NewBus(), &deafSessions{dsn: p.db.Direct}
		woken := make(chan struct{}, 100)
		bus.Subscribe(events.Work, func() { woken <- struct{}{} })
		n := events.NewNotifier(bus, db, "a", nil)
		n.SetProbe(100 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-ended)
		}()
		p.wait(woken, "listening")

		db.mu.Lock()
		db.newest.Store(true)
		db.mu.Unlock()
		said := func() {
			_, err := p.super.Exec(t.Context(), `SELECT pg_notify('forgeyard', 'b work')`)
			require.NoError(t, err)
		}
		said()
		p.wait(woken, "listening again, and what was missed is looked for")
		said()
		p.wait(woken, "work on b")
	})
}
