// Who is let through: tokens, certificates, and what they may do. Each refusal has its status and its code.

package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/cmd/forgeyard/server/servertest"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// gate is a server that wants to know who calls, and everything to get in.
type gate struct {
	*servertest.Cluster
	base string
	log  *bytes.Buffer
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{Cluster: servertest.New(t), log: &bytes.Buffer{}}
	whoami := func(w http.ResponseWriter, r *http.Request) {
		access.WriteJSON(w, 200, access.CallerOf(r.Context()).String())
	}
	r := route("GET", "/x", whoami)
	r.Permission = access.RunRead
	_, base, _ := serve(t, Config{
		Access: Access{Identity: g.Identity, Tokens: g.Tokens},
		Logger: slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Routes: []access.Route{r},
	})
	g.base = strings.Replace(base, "http://", "https://", 1)
	return g
}

func TestWhoIsLetThrough(t *testing.T) {
	g := newGate(t)
	elsewhere, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	impostor, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: g.CA.Cluster()})
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = token.Generate(dir)
	require.NoError(t, err)
	stranger, err := token.ReadSigner(filepath.Join(dir, token.PrivateFile))
	require.NoError(t, err)
	unknownKey, err := stranger.Sign(g.Claims(nil))
	require.NoError(t, err)
	unsigned := jwt.NewWithClaims(jwt.SigningMethodNone, g.Claims(nil))
	unsigned.Header["kid"] = g.Signer.KeyID()
	algNone, err := unsigned.SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	shared := jwt.NewWithClaims(jwt.SigningMethodHS256, g.Claims(nil))
	shared.Header["kid"] = g.Signer.KeyID()
	confused, err := shared.SignedString([]byte(g.Signer.KeyID()))
	require.NoError(t, err)

	admin := pki.Subject{Kind: pki.KindAdmin, ID: "alice"}
	now := time.Now()
	good := "Bearer " + g.Token(t, nil)
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		header []string
		status int
		want   string // a code, or who calls
	}{
		"nothing":             {nil, nil, 401, "FY-AUTH-001"},
		"token":               {nil, []string{good}, 200, "token:ci"},
		"scheme in lowercase": {nil, []string{"bearer" + good[6:]}, 200, "token:ci"},
		"without permission":  {nil, []string{"Bearer " + g.Token(t, func(c *token.Claims) { c.Permissions = []access.Permission{access.RunSubmit} })}, 403, "FY-AUTH-006"},
		"other scheme":        {nil, []string{"Basic YTpi"}, 401, "FY-AUTH-002"},
		"no token":            {nil, []string{"Bearer "}, 401, "FY-AUTH-002"},
		"two headers":         {nil, []string{good, good}, 401, "FY-AUTH-002"},
		"alg none":            {nil, []string{"Bearer " + algNone}, 401, "FY-AUTH-002"},
		"HS256":               {nil, []string{"Bearer " + confused}, 401, "FY-AUTH-002"},
		"unknown kid":         {nil, []string{"Bearer " + unknownKey}, 401, "FY-AUTH-003"},
		"other cluster":       {nil, []string{"Bearer " + g.Token(t, func(c *token.Claims) { c.Audience = jwt.ClaimStrings{elsewhere.Cluster().String()} })}, 401, "FY-AUTH-004"},
		"expired":             {nil, []string{"Bearer " + g.Token(t, func(c *token.Claims) { c.ExpiresAt = jwt.NewNumericDate(now.Add(-time.Minute)) })}, 401, "FY-AUTH-005"},
		"not yet valid":       {nil, []string{"Bearer " + g.Token(t, func(c *token.Claims) { c.NotBefore = jwt.NewNumericDate(now.Add(time.Minute)) })}, 401, "FY-AUTH-005"},
		"13 hours":            {nil, []string{"Bearer " + g.Token(t, func(c *token.Claims) { c.ExpiresAt = jwt.NewNumericDate(now.Add(13 * time.Hour)) })}, 401, "FY-AUTH-005"},

		"admin":                     {servertest.Certificate(t, g.CA, admin, pki.Validity{}), nil, 200, "certificate:alice"},
		"agent":                     {servertest.Certificate(t, g.CA, pki.Subject{Kind: pki.KindAgent, ID: "a"}, pki.Validity{}), nil, 403, "FY-AUTH-007"},
		"node":                      {servertest.Certificate(t, g.CA, pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make())), pki.Validity{}), nil, 403, "FY-AUTH-007"},
		"admin of another cluster":  {servertest.Certificate(t, elsewhere, admin, pki.Validity{}), nil, 401, "FY-CERT-005"},
		"admin by another's CA":     {servertest.Certificate(t, impostor, admin, pki.Validity{}), nil, 401, "FY-CERT-002"},
		"expired admin":             {servertest.Certificate(t, g.CA, admin, pki.Validity{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}), nil, 401, "FY-CERT-004"},
		"admin of tomorrow":         {servertest.Certificate(t, g.CA, admin, pki.Validity{NotBefore: now.Add(time.Hour)}), nil, 401, "FY-CERT-004"},
		"agent with a token":        {servertest.Certificate(t, g.CA, pki.Subject{Kind: pki.KindAgent, ID: "a"}, pki.Validity{}), []string{good}, 200, "token:ci"},
		"admin with a spoilt token": {servertest.Certificate(t, g.CA, admin, pki.Validity{}), []string{good + "x"}, 401, "FY-AUTH-002"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := send(t, g.Client(t, c.cert), "GET", g.base+"/x", func(r *http.Request) { r.Header["Authorization"] = c.header })
			require.Equal(t, c.status, resp.StatusCode, body)
			require.Equal(t, c.status == 401, resp.Header.Get("WWW-Authenticate") != "")
			if c.status == 200 {
				require.Equal(t, `"`+c.want+`"`, strings.TrimSpace(body))
				return
			}
			p := problem(t, body)
			require.Equal(t, c.want, p.Code, body)
			require.NotEmpty(t, p.Hint)
			for _, h := range c.header {
				for _, secret := range strings.FieldsFunc(h, func(r rune) bool { return r == '.' || r == ' ' }) {
					require.True(t, len(secret) < 20 || !strings.Contains(body+g.log.String(), secret), "a credential is shown")
				}
			}
		})
	}
	resp, _ := send(t, g.Client(t, nil), "GET", g.base+"/livez", nil)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "HTTP/2.0", resp.Proto)
	require.EqualValues(t, tls.VersionTLS13, resp.TLS.Version)
	require.Contains(t, g.log.String(), "request refused")
}

func TestTLSOfTheAPI(t *testing.T) {
	g := newGate(t)
	addr := strings.TrimPrefix(g.base, "https://")
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}}
	_, err := old.Get(g.base + "/livez")
	require.ErrorContains(t, err, "protocol version")
	resp, body := send(t, http.DefaultClient, "GET", "http://"+addr+"/livez", nil)
	require.Equal(t, 400, resp.StatusCode, body)

	trust := func(ca *pki.Authority) error {
		a, err := pki.ParseAuthorities(ca.CertPEM())
		require.NoError(t, err)
		conn, err := tls.Dial("tcp", addr, a.ClientTLS(nil, time.Now))
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	require.NoError(t, trust(g.CA))
	elsewhere, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, trust(elsewhere), pki.ErrCluster)
	impostor, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: g.CA.Cluster()})
	require.NoError(t, err)
	require.ErrorIs(t, trust(impostor), pki.ErrAuthority)
}

// A certificate that is replaced on disk serves the next connection, and an
// agent's certificate never passes for a daemon.
func TestCertificateIsReplacedWhileServing(t *testing.T) {
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	dir := t.TempDir()
	caFile := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(caFile, ca.CertPEM(), 0o600))
	subject := pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make()))
	first, err := ca.Issue(subject, pki.Validity{})
	require.NoError(t, err)
	cert, key, err := first.Write(dir, "node")
	require.NoError(t, err)
	id, err := pki.Load(cert, key, caFile)
	require.NoError(t, err)
	_, base, _ := serve(t, Config{Access: Access{Identity: id}})
	trust, err := pki.ParseAuthorities(ca.CertPEM())
	require.NoError(t, err)
	serial := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "http://"), trust.ClientTLS(nil, time.Now))
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	require.Equal(t, first.Certificate.SerialNumber.String(), serial())
	second, err := ca.Issue(subject, pki.Validity{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, second.KeyPEM, 0o600))
	require.NoError(t, os.WriteFile(cert, second.CertPEM, 0o600))
	require.Equal(t, second.Certificate.SerialNumber.String(), serial())

	agent := servertest.Certificate(t, ca, pki.Subject{Kind: pki.KindAgent, ID: "a"}, pki.Validity{})
	leaf, err := x509.ParseCertificate(agent.Certificate[0])
	require.NoError(t, err)
	err = trust.ClientTLS(nil, time.Now).VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
	require.ErrorIs(t, err, pki.ErrPurpose)
}

// Off loopback nothing is served in plain text, whatever else is configured.
func TestOffLoopback(t *testing.T) {
	g := newGate(t)
	node, err := g.CA.Issue(pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make())), pki.Validity{})
	require.NoError(t, err)
	id, err := node.Identity(g.CA)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = New(Config{Listen: l, Access: Access{Tokens: &token.Verifier{}}})
	require.ErrorIs(t, err, ErrNotLoopback)
	_, err = New(Config{Listen: l, Access: Access{Identity: id}})
	require.NoError(t, err)
}

// Tokens alone close a loopback listener too, and then local callers need one.
func TestTokensOnLoopback(t *testing.T) {
	g := newGate(t)
	dir := t.TempDir()
	_, err := token.Generate(dir)
	require.NoError(t, err)
	signer, err := token.ReadSigner(filepath.Join(dir, token.PrivateFile))
	require.NoError(t, err)
	keys, err := token.OpenKeys([]string{dir}, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ok := func(w http.ResponseWriter, r *http.Request) {
		access.WriteJSON(w, 200, access.CallerOf(r.Context()).String())
	}
	_, base, admin := serve(t, Config{Access: Access{Tokens: token.NewVerifier(g.CA.Cluster(), keys, time.Now)}, Routes: []access.Route{route("GET", "/x", ok)}})
	resp, _ := send(t, http.DefaultClient, "GET", base+"/x", nil)
	require.Equal(t, 401, resp.StatusCode)
	resp, _ = send(t, http.DefaultClient, "GET", base+"/metrics", nil)
	require.Equal(t, 401, resp.StatusCode)
	text, err := signer.Sign(g.Claims(func(c *token.Claims) { c.Permissions = []access.Permission{access.ClusterRead} }))
	require.NoError(t, err)
	resp, body := send(t, http.DefaultClient, "GET", base+"/x", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+text) })
	require.Equal(t, 200, resp.StatusCode, body)
	resp, body = send(t, admin, "GET", "http://any/x", nil)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "\"socket\"\n", body)
}

func TestOpenLoopbackTrustsLocalCallers(t *testing.T) {
	ok := func(w http.ResponseWriter, r *http.Request) {
		access.WriteJSON(w, 200, access.CallerOf(r.Context()).String())
	}
	_, base, _ := serve(t, Config{Routes: []access.Route{route("GET", "/x", ok)}})
	_, body := send(t, http.DefaultClient, "GET", base+"/x", func(r *http.Request) { r.Header.Set("Authorization", "Bearer of nothing") })
	require.Equal(t, "\"loopback\"\n", body)
}

func TestHeaderAndContentType(t *testing.T) {
	ok := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			access.WriteError(w, err)
			return
		}
		access.WriteJSON(w, 200, "ok")
	}
	up := route("POST", "/up", ok)
	up.Upload = 200
	_, base, admin := serve(t, Config{MaxBody: 100, Routes: []access.Route{route("POST", "/x", ok), route("GET", "/x", ok), up}})
	for name, c := range map[string]struct {
		path, kind string
		size       int
		header     int
		status     int
		code       string
	}{
		"JSON":                     {"/x", "application/json", 2, 0, 200, ""},
		"JSON with a charset":      {"/x", "application/json; charset=utf-8", 2, 0, 200, ""},
		"no body, no type":         {"/x", "", 0, 0, 200, ""},
		"no type":                  {"/x", "", 2, 0, 415, "FY-API-011"},
		"form":                     {"/x", "application/x-www-form-urlencoded", 2, 0, 415, "FY-API-011"},
		"text":                     {"/x", "text/plain", 2, 0, 415, "FY-API-011"},
		"text that hints at JSON":  {"/x", "text/plain; application/json", 2, 0, 415, "FY-API-011"},
		"upload":                   {"/up", "application/octet-stream", 150, 0, 200, ""},
		"upload, too large":        {"/up", "application/octet-stream", 201, 0, 413, "FY-API-003"},
		"upload as a form":         {"/up", "multipart/form-data; boundary=x", 2, 0, 415, "FY-API-011"},
		"upload as text":           {"/up", "text/plain", 2, 0, 415, "FY-API-011"},
		"body too large":           {"/x", "application/json", 101, 0, 413, "FY-API-003"},
		"large header":             {"/x", "application/json", 2, MaxHeader - 1000, 200, ""},
		"header too large":         {"/x", "application/json", 2, MaxHeader, 431, "FY-API-012"},
		"header too large for all": {"/x", "application/json", 2, 4 * MaxHeader, 431, ""}, // net/http answers, without a document
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := send(t, http.DefaultClient, "POST", base+c.path, func(r *http.Request) {
				r.Header.Del("Content-Type")
				if c.kind != "" {
					r.Header.Set("Content-Type", c.kind)
				}
				r.Header.Set("X-Padding", strings.Repeat("x", c.header))
				text := strings.Repeat("1", c.size)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(c.size)
				if c.size == 0 {
					r.Body = http.NoBody
				}
			})
			require.Equal(t, c.status, resp.StatusCode, body)
			var d access.Document
			_ = json.Unmarshal([]byte(body), &d)
			require.Equal(t, c.code, d.Error.Code, body)
		})
	}
	resp, _ := send(t, admin, "POST", "http://any/x", func(r *http.Request) { r.Header.Del("Content-Type") })
	require.Equal(t, 200, resp.StatusCode, "no browser reaches the socket")
}

// The names by which a listener off loopback is reached.
func TestHostsByName(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { access.WriteJSON(w, 200, "ok") }
	_, base, _ := serve(t, Config{Access: Access{Hosts: []string{"ci.example.org"}}, Routes: []access.Route{route("POST", "/x", ok)}})
	for host, status := range map[string]int{
		"ci.example.org": 200, "CI.example.org:443": 200, "x.ci.example.org": 421, "10.1.2.3:7480": 421, "": 421, "127.0.0.2": 200,
		"[::1]": 200, "[::1]:7480": 200, "[::1": 421, "::1]": 421, "::1": 421, "[::1]]": 421, "[[::1]]": 421, "[::1]7480": 421, "[]": 421, "[": 421,
		"[127.0.0.1": 421, "[127.0.0.1]": 421, "[127.0.0.1]:80": 421, "[localhost": 421, "[localhost]": 421, "[localhost]:80": 421, "[ci.example.org]:80": 421,
		"localhost:": 200, "localhost:80x": 421,
	} {
		rec := &http.Request{Host: host, Header: http.Header{}}
		s := &Server{cfg: Config{Access: Access{Hosts: []string{"ci.example.org"}}}}
		require.Equal(t, status == 200, s.ownName(rec), host)
	}
	here := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}
	arrived := (&http.Request{Host: "10.1.2.3:7480"}).WithContext(contextWith(t, here))
	require.True(t, (&Server{}).ownName(arrived), "the address at which the connection arrived")
	resp, body := send(t, http.DefaultClient, "POST", base+"/x", func(r *http.Request) {
		r.Host = "ci.example.org"
		r.Header.Set("Origin", "https://ci.example.org")
	})
	require.Equal(t, 200, resp.StatusCode, body)
}
