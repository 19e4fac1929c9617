// Probes, readiness checks and the administration socket.

package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
)

// Only the probes are public, and /metrics where that is configured (§224).
func TestPublicEndpointSet(t *testing.T) {
	for open, want := range map[bool][]string{
		false: {"/livez", "/readyz", "/health"},
		true:  {"/livez", "/readyz", "/health", "/metrics"},
	} {
		s, err := New(Config{Admin: &net.UnixListener{}, Access: Access{PublicMetrics: open}})
		require.NoError(t, err)
		var public []string
		for _, r := range s.own() {
			if r.Permission == access.Public {
				public = append(public, r.Pattern)
			}
		}
		require.Equal(t, want, public)
	}
	for _, r := range []access.Route{
		{Method: "GET", Pattern: "/v1/runs"}, {Method: "POST", Pattern: "/livez"}, {Method: "GET", Pattern: "/metrics"},
		{Method: "GET", Pattern: "/v1/x", Permission: "cluster.reed"}, {Pattern: "/v1/x", Permission: access.RunRead},
	} {
		if r.Handler == nil {
			r.Handler = fail(errors.New("reached"))
		}
		_, err := New(Config{Admin: &net.UnixListener{}, Routes: []access.Route{r}})
		require.ErrorContains(t, err, "mount "+r.Method+" "+r.Pattern)
	}
}

func TestProbes(t *testing.T) {
	var broken atomic.Bool
	ready := NewChecks(time.Now, Check{"raft", func(context.Context) error { return nil }}, Check{"postgres", func(context.Context) error {
		if broken.Load() {
			return errors.New("dial 10.0.0.20:5432")
		}
		return nil
	}})
	_, base, admin := serve(t, Config{Ready: ready, Version: Version{Version: "1.2.3"}})
	get := func(path string) (int, string) {
		resp, body := send(t, admin, "GET", "http://localhost"+path, nil)
		return resp.StatusCode, body
	}
	code, body := get("/readyz")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\n", body)
	code, body = get("/readyz?verbose")
	require.Equal(t, 200, code)
	require.Equal(t, "[+]raft ok\n[+]postgres ok\nreadyz check passed\n", body)

	broken.Store(true)
	require.Eventually(t, func() bool { code, body = get("/readyz"); return code == 503 }, 5*time.Second, 20*time.Millisecond)
	require.Equal(t, "[+]raft ok\n[-]postgres failed: reason withheld\nreadyz check failed\n", body)
	code, _ = get("/livez")
	require.Equal(t, 200, code, "alive is not ready")

	code, body = get("/readyz?verbose&exclude=postgres")
	require.Equal(t, 200, code)
	require.Equal(t, "[+]raft ok\n[+]postgres excluded: ok\nreadyz check passed\n", body)

	ready.Drain()
	code, _ = get("/readyz?exclude=serving")
	require.Equal(t, 503, code, "that it stops cannot be excluded")
	code, body = get("/health")
	require.Equal(t, 503, code)
	require.Equal(t, "[-]serving failed: reason withheld\nreadyz check failed\n", body)
	resp, text := send(t, http.DefaultClient, "GET", base+"/v1/version", nil)
	require.Equal(t, 200, resp.StatusCode)
	require.JSONEq(t, `{"apiVersion":"forgeyard.dev/v1","kind":"Version","version":"1.2.3","commit":"","go":""}`, text)
}

func TestChecksAreCachedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		release := make(chan struct{})
		c := NewChecks(time.Now,
			Check{"counted", func(context.Context) error { asked++; return nil }},
			Check{"hung", func(context.Context) error { <-release; return nil }}, // ignores its context
			Check{"panics", func(context.Context) error { panic("x") }})
		start := time.Now()
		results := c.Run(t.Context())
		require.Equal(t, CheckTimeout, time.Since(start))
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, ErrNoAnswer)
		require.ErrorContains(t, results[2].Err, "check panicked: x")

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		c.Run(gone)
		require.Zero(t, time.Since(start), "a prober that is gone waits for nothing")
		close(release)
		synctest.Wait()
		before := asked
		results = c.Run(t.Context())
		require.NoError(t, results[1].Err)
		c.Run(t.Context())
		require.LessOrEqual(t, asked, before+1, "a fresh answer is not asked for again")
		require.NoError(t, c.settle(t.Context()))
	})
}

func TestAdminSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.sock")
	l, err := ListenAdmin(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = ListenAdmin(path)
	require.ErrorIs(t, err, ErrAdminInUse)
	require.NoError(t, l.Close())
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	l, err = ListenAdmin(path)
	require.NoError(t, err, "what a dead process left is replaced")
	require.NoError(t, l.Close())

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = ListenAdmin(path)
	require.ErrorContains(t, err, "is not a socket")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}
