// What a request passes before its handler, what errors become, and how serving ends.

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func route(method, pattern string, h http.HandlerFunc) access.Route {
	return access.Route{Method: method, Pattern: pattern, Permission: access.ClusterRead, Handler: h}
}

func fail(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { access.WriteError(w, err) }
}

// serve starts a server on loopback and on an administration socket.
func serve(t *testing.T, cfg Config) (s *Server, base string, admin *http.Client) {
	t.Helper()
	var err error
	cfg.Listen, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "admin.sock")
	cfg.Admin, err = ListenAdmin(path)
	require.NoError(t, err)
	s, err = New(cfg)
	require.NoError(t, err)
	s.Start()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		require.NoError(t, s.Close(context.Background()))
	})
	return s, "http://" + cfg.Listen.Addr().String(), &http.Client{Transport: tr}
}

func send(t *testing.T, c *http.Client, method, url string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(b)
}

func problem(t *testing.T, body string) access.Problem {
	t.Helper()
	var d access.Document
	require.NoError(t, json.Unmarshal([]byte(body), &d), body)
	return d.Error
}

func TestStatusMapping(t *testing.T) {
	kind := func(k cluster.Kind) error {
		return &cluster.Error{Kind: k, Code: "FY-TEST-001", Message: "what", Hint: "now", Err: errors.New("secret cause")}
	}
	for name, c := range map[string]struct {
		err       error
		status    int
		retry     string
		retryable bool
	}{
		"NotLeader":           {kind(cluster.NotLeader), 503, "1", true},
		"NoQuorum":            {kind(cluster.NoQuorum), 503, "5", true},
		"Fenced":              {kind(cluster.Fenced), 409, "", false},
		"MembershipConflict":  {kind(cluster.MembershipConflict), 409, "", false},
		"JoinRejected":        {kind(cluster.JoinRejected), 403, "", false},
		"IncompatibleVersion": {kind(cluster.IncompatibleVersion), 422, "", false},
		"StorageFailure":      {kind(cluster.StorageFailure), 503, "1", false},
		"TransportFailure":    {kind(cluster.TransportFailure), 503, "1", true},
		"Internal":            {kind(cluster.Internal), 500, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, base, _ := serve(t, Config{Routes: []access.Route{route("GET", "/x", fail(c.err))}})
			resp, body := send(t, http.DefaultClient, "GET", base+"/x", nil)
			require.Equal(t, c.status, resp.StatusCode)
			require.Equal(t, c.retry, resp.Header.Get("Retry-After"))
			p := problem(t, body)
			require.Equal(t, access.Problem{Code: "FY-TEST-001", Kind: name, Message: "what", Hint: "now", Retryable: c.retryable, RequestID: resp.Header.Get(access.RequestIDHeader)}, p)
			require.Len(t, p.RequestID, 26)
			require.NotContains(t, body, "secret")
		})
	}
}

// A NoQuorum answer is a safe degraded response (§316).
func TestNoQuorumResponse(t *testing.T) {
	err := cluster.ErrNoQuorum.Wrap(errors.New("dial 10.0.0.12:7443"), "")
	_, base, _ := serve(t, Config{Routes: []access.Route{route("POST", "/x", fail(err))}})
	resp, body := send(t, http.DefaultClient, "POST", base+"/x", nil)
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, "5", resp.Header.Get("Retry-After"))
	p := problem(t, body)
	require.Equal(t, "FY-QUORUM-001", p.Code)
	require.Contains(t, p.Hint, "running jobs go on")
	require.NotContains(t, body, "10.0.0.12")
}

// Clients are never sent to the leader (§105): no 3xx, and no address in the answer.
func TestNoLeaderRedirect(t *testing.T) {
	err := cluster.ErrNotLeader.Wrap(errors.New("leader is 10.0.0.11:7443"), "")
	_, base, _ := serve(t, Config{Routes: []access.Route{route("POST", "/v1/x", fail(err))}})
	for _, path := range []string{"/v1/x", "/v1/x/", "/v1//x", "/v1/../v1/x"} {
		noFollow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, body := send(t, noFollow, "POST", base+path, nil)
		require.NotContains(t, body, "10.0.0.11")
		require.NotContains(t, resp.Header.Get("Location"), "10.0.0.11")
		if path == "/v1/x" {
			require.Equal(t, 503, resp.StatusCode)
			require.Empty(t, resp.Header.Get("Location"))
		}
		noFollow.CloseIdleConnections()
	}
}

func TestHostAndOrigin(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { access.WriteJSON(w, 200, "ok") }
	_, base, admin := serve(t, Config{Routes: []access.Route{route("POST", "/x", ok), route("GET", "/x", ok)}})
	port := base[strings.LastIndex(base, ":"):]
	for name, c := range map[string]struct {
		method, host, origin, site, code string
	}{
		"command line":            {"POST", "127.0.0.1" + port, "", "", ""},
		"localhost":               {"POST", "localhost" + port, "", "", ""},
		"IPv6 loopback":           {"GET", "[::1]" + port, "", "", ""},
		"own page":                {"POST", "127.0.0.1" + port, "http://127.0.0.1" + port, "same-origin", ""},
		"address bar":             {"GET", "127.0.0.1" + port, "", "none", ""},
		"rebinding":               {"GET", "evil.example" + port, "", "", "FY-API-007"},
		"rebinding, change":       {"POST", "127.0.0.1.evil.example", "", "", "FY-API-007"},
		"private address":         {"GET", "10.0.0.1" + port, "", "", "FY-API-007"},
		"other site":              {"POST", "127.0.0.1" + port, "https://evil.example", "cross-site", "FY-API-008"},
		"other site, old browser": {"POST", "127.0.0.1" + port, "https://evil.example", "", "FY-API-008"},
		"other port":              {"POST", "127.0.0.1" + port, "http://127.0.0.1:1", "same-site", "FY-API-008"},
		"sandboxed frame":         {"POST", "127.0.0.1" + port, "null", "", "FY-API-008"},
		"reading from elsewhere":  {"GET", "127.0.0.1" + port, "https://evil.example", "cross-site", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := send(t, http.DefaultClient, c.method, base+"/x", func(r *http.Request) {
				r.Host = c.host
				for k, v := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
					if v != "" {
						r.Header.Set(k, v)
					}
				}
			})
			if c.code == "" {
				require.Equal(t, 200, resp.StatusCode, body)
				require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), "no other page may read the answer")
				return
			}
			require.Equal(t, c.code, problem(t, body).Code)
		})
	}
	resp, _ := send(t, admin, "POST", "http://any.name/x", nil)
	require.Equal(t, 200, resp.StatusCode, "a browser cannot reach the socket")
}

func TestNotLoopbackIsRefused(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	_, err = New(Config{Listen: l})
	require.ErrorIs(t, err, ErrNotLoopback)
	require.NoError(t, l.Close())
	_, err = New(Config{})
	require.Error(t, err)
}

func TestRequestBounds(t *testing.T) {
	var log bytes.Buffer
	echo := func(w http.ResponseWriter, r *http.Request) {
		var v map[string]int
		if err := access.ReadJSON(w, r, &v); err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, 200, v)
	}
	_, base, _ := serve(t, Config{MaxBody: 100, Logger: slog.New(slog.NewTextHandler(&log, nil)), Routes: []access.Route{
		route("POST", "/echo", echo), route("GET", "/panic", func(http.ResponseWriter, *http.Request) { panic("boom") }),
		route("GET", "/slow", fail(context.DeadlineExceeded)), route("GET", "/plain", fail(errors.New("password=x"))),
	}})
	post := func(body string) (int, access.Problem) {
		resp, text := send(t, http.DefaultClient, "POST", base+"/echo", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		})
		if resp.StatusCode == 200 {
			return 200, access.Problem{}
		}
		return resp.StatusCode, problem(t, text)
	}
	for body, want := range map[string]string{
		`{"a":1}`: "", `{"a":"x"}`: "FY-API-001", `{`: "FY-API-001", ``: "FY-API-001", `{} {}`: "FY-API-001", `[1]`: "FY-API-001",
		`{"a":` + strings.Repeat(" ", 200) + `1}`: "FY-API-003",
	} {
		_, p := post(body)
		require.Equal(t, want, p.Code, body)
	}
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/panic": {500, "FY-API-006"}, "/plain": {500, "FY-API-006"}, "/slow": {504, "FY-API-005"}, "/none": {404, "FY-API-002"}, "/echo": {405, "FY-API-009"},
	} {
		resp, body := send(t, http.DefaultClient, "GET", base+path, nil)
		require.Equal(t, want.status, resp.StatusCode, path)
		p := problem(t, body)
		require.Equal(t, want.code, p.Code)
		require.NotContains(t, body, "password")
		require.NotContains(t, body, "boom")
		if path == "/panic" {
			require.Contains(t, log.String(), p.RequestID)
			require.Contains(t, log.String(), "boom")
		}
		if path == "/echo" {
			require.Equal(t, "POST", resp.Header.Get("Allow"))
		}
	}
}

func TestConflictingRoutesAreReported(t *testing.T) {
	l := &net.UnixListener{}
	_, err := New(Config{Admin: l, Routes: []access.Route{route("GET", "/x", nil), route("GET", "/x", fail(nil))}})
	require.ErrorContains(t, err, "mount routes")
}

func TestPrivateRoutesOnTheAdministrationSocketAlone(t *testing.T) {
	done := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	_, base, admin := serve(t, Config{Private: []access.Route{route("POST", "/private", done)}})
	resp, _ := send(t, admin, "POST", "http://admin/private", nil)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	resp, body := send(t, http.DefaultClient, "POST", base+"/private", func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	require.Equal(t, http.StatusNotFound, resp.StatusCode, body)
}

func TestCloseLetsRequestsFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s, base, _ := serve(t, Config{Routes: []access.Route{route("GET", "/x", func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		access.WriteJSON(w, 200, "done")
	})}})
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get(base + "/x")
		if err != nil {
			answer <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answer <- string(b)
	}()
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 5*time.Second, 5*time.Millisecond, "no new connection is accepted")
	close(release)
	require.Equal(t, "\"done\"\n", <-answer)
	require.NoError(t, <-closed)
}

func TestCloseCutsRequestsAtItsBound(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	s, base, _ := serve(t, Config{Routes: []access.Route{route("GET", "/x", func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	})}})
	answer := make(chan error, 1)
	go func() {
		resp, err := http.Get(base + "/x")
		if err == nil {
			_ = resp.Body.Close()
		}
		answer <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorContains(t, s.Close(ctx), "requests were cut off")
	<-left
	require.Error(t, <-answer)
}

func TestAnswersThatCannotBeEncoded(t *testing.T) {
	rec := httptest.NewRecorder()
	access.WriteJSON(rec, 200, func() {})
	require.Equal(t, 500, rec.Code)
	require.Equal(t, "FY-API-006", problem(t, rec.Body.String()).Code)
}
