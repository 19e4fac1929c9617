// The authorisation table: every route that the daemon mounts, asked by every kind of caller, against a reviewed file.

package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cluster/config"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server/servertest"
	"github.com/forgeyard/forgeyard/roles/artifact"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// callerKinds are the columns of the table.
func callerKinds() []string {
	return []string{"none", "read", "submit", "cancel", "manage", "admin", "agent", "node"}
}

// visitors asks as each kind of caller.
type visitors struct {
	base    string
	clients map[string]*http.Client
	tokens  map[string]string
}

// mounted is a server with the daemon's routes, whose handlers only say that they were reached.
func mounted(t *testing.T) (*server.Server, visitors) {
	t.Helper()
	c := servertest.New(t)
	cfg := config.Default()
	cfg.Cluster.Mode = config.Distributed
	out := Outside{Logger: slog.New(slog.DiscardHandler), Now: time.Now}
	out.Actors.AllowCrash = true
	d := New(cfg, Start{}, out)
	d.content = &content{collector: &artifact.Collector{}}
	shared, private := d.routes() // a value: nothing of the daemon needs to run
	reached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, list := range [][]access.Route{shared, private} {
		for i := range list {
			list[i].Handler = reached
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(server.Config{
		Listen: l, Routes: shared, Private: private,
		Access: server.Access{Identity: c.Identity, Tokens: c.Tokens},
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })

	v := visitors{base: "https://" + l.Addr().String(), clients: map[string]*http.Client{}, tokens: map[string]string{}}
	shown := map[string]pki.Subject{"admin": {Kind: pki.KindAdmin, ID: "alice"}, "agent": {Kind: pki.KindAgent, ID: "a1"}, "node": c.Node}
	held := map[string][]access.Permission{
		"read": {access.RunRead, access.ClusterRead}, "submit": {access.RunSubmit}, "cancel": {access.RunCancel}, "manage": {access.ClusterManage},
	}
	for _, kind := range callerKinds() {
		var own *tls.Certificate
		if subject, ok := shown[kind]; ok {
			own = servertest.Certificate(t, c.CA, subject, pki.Validity{})
		}
		v.clients[kind] = c.Client(t, own)
		if permissions := held[kind]; permissions != nil {
			v.tokens[kind] = c.Token(t, func(claims *token.Claims) { claims.Subject, claims.Permissions = kind, permissions })
		}
	}
	return s, v
}

// ask returns "yes" when the handler was reached, else the status.
func (v visitors) ask(t *testing.T, kind string, r access.Route) string {
	t.Helper()
	path := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(r.Pattern, "x")
	req, err := http.NewRequest(r.Method, v.base+path, nil)
	require.NoError(t, err)
	if v.tokens[kind] != "" {
		req.Header.Set("Authorization", "Bearer "+v.tokens[kind])
	}
	resp, err := v.clients[kind].Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	if resp.StatusCode < 300 {
		return "yes"
	}
	return fmt.Sprint(resp.StatusCode)
}

func TestAuthorizationTable(t *testing.T) {
	s, v := mounted(t)
	shared, private := s.Routes()
	var got []string
	for _, r := range append(shared, private...) {
		permission := string(r.Permission)
		if r.Permission == access.Public {
			permission = "public"
		}
		row := []string{r.Method, r.Pattern, permission}
		for _, kind := range callerKinds() {
			row = append(row, v.ask(t, kind, r))
		}
		got = append(got, strings.Join(row, " "))
	}
	slices.Sort(got)
	require.Equal(t, reviewed(t), got, "testdata/authorization.txt is written by hand: decide who may, then add the row")
}

// reviewed reads the table: comments and the width of gaps do not count.
func reviewed(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/authorization.txt")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			rows = append(rows, strings.Join(fields, " "))
		}
	}
	slices.Sort(rows)
	return rows
}
