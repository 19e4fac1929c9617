// Line: the connections of one incarnation, to PostgreSQL and from its clients, which all break when it is killed.

package bubble

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// line holds the connections of one process.
type line struct {
	mu    sync.Mutex
	ended bool
	open  map[*lineConn]bool
}

// lineConn is one of them.
type lineConn struct {
	net.Conn
	of *line
}

func newLine() *line { return &line{open: map[*lineConn]bool{}} }

// Close closes the connection.
func (c *lineConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// dial is daemon.Outside.Postgres.
func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return l.take(c)
}

// take makes a connection one of the process, or closes it when the process has ended.
func (l *line) take(c net.Conn) (net.Conn, error) {
	taken := &lineConn{Conn: c, of: l}
	l.mu.Lock()
	ended := l.ended
	if !ended {
		l.open[taken] = true
	}
	l.mu.Unlock()
	if ended {
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: "line", Err: syscall.ECONNREFUSED}
	}
	return taken, nil
}

// cut breaks every connection, and each that is made later.
func (l *line) cut() {
	l.mu.Lock()
	l.ended = true
	broken := l.open
	l.open = map[*lineConn]bool{}
	l.mu.Unlock()
	for c := range broken {
		_ = c.Conn.Close()
	}
}
