// Fuzzing of the headers that decide whether a browser was tricked: Host, Origin, Content-Type.

package server

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// Whatever host a browser would have dialled for a URL with this authority, it was this machine.
func FuzzHost(f *testing.F) {
	for name, h := range map[string]string{
		"localhost": "localhost:7480", "IPv4": "127.0.0.1:7480", "IPv6": "[::1]:7480", "own": "10.0.0.1:7480", "configured": "Yard.example", "foreign": "evil.example:7480",
		"all of loopback": "127.9.9.9", "IPv4 in IPv6": "[::ffff:127.0.0.1]:1", "a user": "localhost@evil.example", "a dot last": "localhost.", "a suffix": "localhost.evil.example",
		"octal": "0177.0.0.1", "short": "127.1", "a number": "2130706433", "any": "0.0.0.0", "brackets": "[localhost]:80", "unbalanced": "]localhost[", "half a bracket": "]localhost", "a user without a host": "localhost:@", "half an address": "[::1", "a path": "localhost/evil.example", "nothing": "", "NUL": "localhost\x00.evil.example", "zone": "[::1%25eth0]:80",
	} {
		corpus.Add(f, name, h)
	}
	s := &Server{cfg: Config{Access: Access{Hosts: []string{"yard.example"}}}, origin: http.NewCrossOriginProtection()}
	here := &net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 7480}
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/runs", nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here))
		if !s.ownName(r) {
			require.Error(t, s.admissible(r, true))
			return
		}
		u, err := url.Parse("http://" + host + "/")
		require.NoError(t, err, "no URL has such a host")
		name := strings.ToLower(u.Hostname())
		ip, err := netip.ParseAddr(name)
		local := err == nil && (ip.Unmap().IsLoopback() || ip.Unmap() == netip.MustParseAddr("10.0.0.1"))
		require.True(t, local || name == "localhost" || name == "yard.example", "%q names %q", host, name)
	})
}

// What a page of another site can send without asking first changes nothing: its
// bodies are of three types, and its requests carry its origin.
func FuzzCrossSite(f *testing.F) {
	corpus.Add(f, "our console", "http://localhost:7480", "same-origin", "application/json")
	corpus.Add(f, "another site", "http://evil.example", "cross-site", "application/json")
	corpus.Add(f, "a form", "", "", "application/x-www-form-urlencoded")
	corpus.Add(f, "a form of parts", "", "", "multipart/form-data; boundary=x")
	corpus.Add(f, "text that is JSON", "", "", "text/plain; a=\"application/json\"")
	corpus.Add(f, "no origin", "null", "", "application/json; charset=utf-8")
	corpus.Add(f, "capitals", "HTTP://LOCALHOST:7480", "Same-Origin", "APPLICATION/JSON")
	corpus.Add(f, "broken", "http://[", "x", "application/json; =")
	s := &Server{origin: http.NewCrossOriginProtection()}
	f.Fuzz(func(t *testing.T, origin, site, contentType string) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost:7480/v1/runs", strings.NewReader("{}"))
		r.Header["Origin"], r.Header["Sec-Fetch-Site"], r.Header["Content-Type"] = []string{origin}, []string{site}, []string{contentType}
		if site == "cross-site" || site == "same-site" {
			require.Error(t, s.admissible(r, true))
		}
		for _, upload := range []bool{false, true} {
			err := checkType(r, upload)
			if err != nil {
				status, _ := access.Explain(err)
				require.Equal(t, http.StatusUnsupportedMediaType, status)
				continue
			}
			kind, _, _ := strings.Cut(strings.ToLower(contentType), ";")
			kind = strings.TrimSpace(kind)
			for _, simple := range []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""} {
				require.NotEqual(t, simple, kind, "upload %v", upload)
			}
			require.True(t, upload || kind == "application/json", "%q", contentType)
		}
	})
}
