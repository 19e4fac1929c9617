// Streams and uploads: their deadlines, and how they end with the server.

package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server/servertest"
	"github.com/forgeyard/forgeyard/transport/pki"
)

func contextWith(t *testing.T, local net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, local)
}

// ticker streams a line whenever tick delivers, until its request ends.
func ticker(tick <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case line := <-tick:
				if _, err := io.WriteString(w, line+"\n"); err != nil {
					return
				}
				if err := control.Flush(); err != nil {
					return
				}
			case <-r.Context().Done():
				_, _ = io.WriteString(w, "bye\n") // the client may be gone
				return
			}
		}
	}
}

func streaming(h http.HandlerFunc) access.Route {
	r := route("GET", "/events", h)
	r.Stream = true
	return r
}

// A stream outlives the deadlines of requests, and ends with the server in less
// than a second, with a last word; over HTTP/1.1 and HTTP/2.
func TestStreamsEndWithTheServer(t *testing.T) {
	g := newGate(t)
	issued, err := g.CA.Issue(pki.Node(g.CA.Cluster(), [16]byte{1}), pki.Validity{})
	require.NoError(t, err)
	id, err := issued.Identity(g.CA)
	require.NoError(t, err)
	admin := servertest.Certificate(t, g.CA, pki.Subject{Kind: pki.KindAdmin, ID: "alice"}, pki.Validity{})
	for name, c := range map[string]struct {
		access Access
		client *http.Client
		scheme string
	}{
		"HTTP/1.1": {Access{}, http.DefaultClient, "http://"},
		"HTTP/2":   {Access{Identity: id}, g.Client(t, admin), "https://"},
	} {
		t.Run(name, func(t *testing.T) {
			tick := make(chan string)
			s, base, _ := serve(t, Config{Access: c.access, Routes: []access.Route{streaming(ticker(tick))}})
			go func() { tick <- "one" }()
			resp, err := c.client.Get(c.scheme + strings.TrimPrefix(base, "http://") + "/events")
			require.NoError(t, err)
			defer func() { require.NoError(t, resp.Body.Close()) }()
			lines := bufio.NewReader(resp.Body)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "one\n", line)
			_, metrics := send(t, c.client, "GET", c.scheme+strings.TrimPrefix(base, "http://")+"/metrics", nil)
			require.Contains(t, metrics, "forgeyard_sse_clients 1\n")

			begun := time.Now()
			closed := make(chan error, 1)
			go func() { closed <- s.Close(context.Background()) }()
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, "bye\n", string(rest))
			require.NoError(t, <-closed)
			require.Less(t, time.Since(begun), time.Second)
		})
	}
}

// A client that reads nothing does not hold up the stop of a server.
func TestStalledStreamEnds(t *testing.T) {
	blocked := make(chan struct{})
	s, base, _ := serve(t, Config{Routes: []access.Route{streaming(func(w http.ResponseWriter, r *http.Request) {
		block := []byte(strings.Repeat("x", 1<<20))
		for i := 0; r.Context().Err() == nil; i++ {
			if i == 16 { // far more than the buffers of a connection hold
				close(blocked)
			}
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, conn, 1<<10)
	require.NoError(t, err, "it streams")
	begun := time.Now()
	require.NoError(t, s.Close(context.Background()))
	require.Less(t, time.Since(begun), time.Second)
	select {
	case <-blocked:
		t.Log("the system's buffers took more than 16 MiB")
	default:
	}
}

// pipeListener hands out in-memory connections, so that time can be virtual.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
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
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (l *pipeListener) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		l.conns <- theirs
		return mine, nil
	}}}
}

// Deadlines in virtual time: an ordinary request is cut, a stream and a slow
// upload are not, an upload that stalls is.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := make(chan string)
		var cut error
		store := func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if cut = err; err != nil {
				access.WriteError(w, err)
				return
			}
			access.WriteJSON(w, 200, n)
		}
		up, plain := route("POST", "/up", store), route("POST", "/plain", store)
		up.Upload = 1 << 20
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		s, err := New(Config{Admin: l, Routes: []access.Route{streaming(ticker(tick)), up, plain}})
		require.NoError(t, err)
		s.Start()
		defer func() { require.NoError(t, s.Close(context.Background())) }()

		resp, err := openStream(l.client(), tick)
		require.NoError(t, err)
		lines := bufio.NewReader(resp.Body)
		for range 30 { // half an hour
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "tick\n", line)
			<-time.After(time.Minute)
			go func() { tick <- "tick" }()
		}
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())

		status, err := slowly(l, "/up", 20, ReadTimeout-time.Second) // ten minutes
		require.NoError(t, err)
		require.Equal(t, 200, status)
		require.NoError(t, cut)
		status, err = slowly(l, "/up", 2, ReadTimeout+time.Second)
		require.NoError(t, err)
		require.Equal(t, 500, status, "an upload that stalls is cut")
		require.ErrorIs(t, cut, os.ErrDeadlineExceeded)
		cut = nil
		// No byte is due at the deadline itself: one that meets the closing connection fails at the client, which then sees no answer.
		status, err = slowly(l, "/plain", 3, ReadTimeout*2/5)
		require.NoError(t, err)
		require.Equal(t, 500, status)
		require.ErrorIs(t, cut, os.ErrDeadlineExceeded, "an ordinary request has one deadline for all of it")
	})
}

func openStream(c *http.Client, tick chan<- string) (*http.Response, error) {
	go func() { tick <- "tick" }()
	return c.Get("http://pipe/events")
}

// slowly sends n bytes with a pause before each.
func slowly(l *pipeListener, path string, n int, pause time.Duration) (int, error) {
	r, w := io.Pipe()
	sent := make(chan struct{})
	defer func() { <-sent }()
	go func() {
		defer close(sent)
		for range n {
			<-time.After(pause)
			if _, err := w.Write([]byte("1")); err != nil {
				return
			}
		}
		_ = w.Close() // always nil
	}()
	resp, err := l.client().Post("http://pipe"+path, "application/json", r)
	_ = r.Close() // always nil
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// Whoever may upload cannot take the daemon's memory with many uploads, nor the
// connections of everybody else; a place is free again when its holder has left.
func TestUploadsAreBounded(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	up := route("POST", "/up", func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-leave
		access.WriteJSON(w, 200, nil)
	})
	up.Upload = 1 << 20
	_, base, _ := serve(t, Config{Routes: []access.Route{up, route("GET", "/other", func(w http.ResponseWriter, _ *http.Request) { access.WriteJSON(w, 200, nil) })}})
	ended := make(chan int, MaxUploads)
	for range MaxUploads {
		go func() {
			resp, err := http.Post(base+"/up", "application/octet-stream", strings.NewReader("x"))
			if err != nil {
				ended <- 0
				return
			}
			defer resp.Body.Close()
			ended <- resp.StatusCode
		}()
		<-inside
	}
	resp, body := send(t, http.DefaultClient, "POST", base+"/up", nil)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "FY-API-013", problem(t, body).Code)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	resp, _ = send(t, http.DefaultClient, "GET", base+"/other", nil)
	require.Equal(t, 200, resp.StatusCode)
	close(leave)
	for range MaxUploads {
		require.Equal(t, 200, <-ended)
	}
	go func() { <-inside }()
	resp, _ = send(t, http.DefaultClient, "POST", base+"/up", nil)
	require.Equal(t, 200, resp.StatusCode)
}

// A large upload is answered although storing it takes longer, once it has come,
// than an ordinary request may.
func TestLargeUploadIsAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 64 << 20
		up := route("POST", "/up", func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				access.WriteError(w, err)
				return
			}
			<-time.After(WriteTimeout + access.StoreTime(n) - time.Second)
			access.WriteJSON(w, 200, n)
		})
		up.Upload = size
		l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		s, err := New(Config{Admin: l, Routes: []access.Route{up}})
		require.NoError(t, err)
		s.Start()
		defer func() { require.NoError(t, s.Close(context.Background())) }()
		resp, err := l.client().Post("http://pipe/up", "application/json", bytes.NewReader(make([]byte, size)))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	})
}
