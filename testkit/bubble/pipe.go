// An in-memory listener: a real Accept would freeze the bubble's clock.

package bubble

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// pipeListener hands out one end of a net.Pipe per dial.
type pipeListener struct {
	line  *line
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener(l *line) *pipeListener {
	return &pipeListener{line: l, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	theirs, err := l.line.take(theirs)
	if err != nil {
		return nil, err
	}
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = theirs.Close()
	return nil, err
}

// client talks HTTP through the listener, one connection per request.
func (l *pipeListener) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: l.dial, DisableKeepAlives: true}}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
