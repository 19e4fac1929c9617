// What a token must be to open anything, who may have one made, and how trust in a key ends.

package token

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/fsm"
)

// rig is a cluster with one trusted key and a clock.
type rig struct {
	dir      string
	cluster  fsm.ClusterID
	signer   Signer
	clock    time.Time
	keys     *Keys
	verifier *Verifier
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), cluster: fsm.ClusterID(ulid.Make()), clock: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	r.signer = r.key(t, r.dir)
	var err error
	r.keys, err = OpenKeys([]string{r.dir}, r.now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	r.verifier = NewVerifier(r.cluster, r.keys, r.now)
	return r
}

func (r *rig) now() time.Time { return r.clock }

// key makes a key pair in a directory and returns its private half.
func (r *rig) key(t testing.TB, dir string) Signer {
	t.Helper()
	id, err := Generate(dir)
	require.NoError(t, err)
	s, err := ReadSigner(filepath.Join(dir, PrivateFile))
	require.NoError(t, err)
	require.Equal(t, id, s.KeyID())
	return s
}

func (r *rig) claims() Claims {
	return Request{Subject: "ci", Permissions: []access.Permission{access.RunSubmit}, TTLSeconds: 3600}.grant(r.cluster, r.clock)
}

func requireFault(t *testing.T, err error, want *access.Fault) {
	t.Helper()
	require.ErrorIs(t, err, want)
	status, p := access.Explain(err)
	require.Equal(t, want.Status, status)
	require.Equal(t, want.Code, p.Code)
}

func TestGoodToken(t *testing.T) {
	r := newRig(t)
	claims := r.claims()
	text, err := r.signer.Sign(claims)
	require.NoError(t, err)
	c, err := r.verifier.Verify(text)
	require.NoError(t, err)
	require.Equal(t, access.NewCaller(access.ByToken, "ci", claims.ID, access.RunSubmit), c)
	require.Equal(t, "token:ci", c.String())
	require.True(t, c.May(access.RunSubmit))
	require.False(t, c.May(access.RunRead), "no permission implies another")

	claims.Permissions = []access.Permission{"cluster.everything", access.Public}
	text, err = r.signer.Sign(claims)
	require.NoError(t, err)
	c, err = r.verifier.Verify(text)
	require.NoError(t, err, "a permission of a later build opens nothing here")
	require.False(t, c.May("cluster.everything"))
	require.False(t, c.May(access.Public))
}

func TestRefusedTokens(t *testing.T) {
	r := newRig(t)
	stranger := r.key(t, t.TempDir())
	public := r.signer.key.Public().(ed25519.PublicKey)
	ago := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(r.clock.Add(-d)) }
	eddsa := func(change func(*Claims)) string {
		c := r.claims()
		change(&c)
		text, err := r.signer.Sign(c)
		require.NoError(t, err)
		return text
	}
	forged := func(m jwt.SigningMethod, key any, header map[string]any) string {
		tok := jwt.NewWithClaims(m, r.claims())
		tok.Header["kid"] = r.signer.KeyID()
		for k, v := range header {
			tok.Header[k] = v
		}
		text, err := tok.SignedString(key)
		require.NoError(t, err)
		return text
	}
	good := eddsa(func(*Claims) {})
	parts := strings.Split(good, ".")
	byStranger, err := stranger.Sign(r.claims())
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		text string
		want *access.Fault
	}{
		"nothing":                     {"", ErrMalformed},
		"no token":                    {"abc", ErrMalformed},
		"too large":                   {strings.Repeat("a", MaxSize+1), ErrMalformed},
		"four parts":                  {good + ".x", ErrMalformed},
		"other claims, old signature": {parts[0] + "." + strings.Split(eddsa(func(c *Claims) { c.Subject = "root" }), ".")[1] + "." + parts[2], ErrMalformed},
		"no signature":                {parts[0] + "." + parts[1] + ".", ErrMalformed},
		"alg none":                    {forged(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil), ErrMalformed},
		"HS256 with the raw key":      {forged(jwt.SigningMethodHS256, []byte(public), nil), ErrMalformed},
		"HS256 with the key file":     {forged(jwt.SigningMethodHS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil), ErrMalformed},
		"alg in lower case":           {forged(jwt.SigningMethodEdDSA, r.signer.key, map[string]any{"alg": "eddsa"}), ErrMalformed},
		"no kid":                      {forged(jwt.SigningMethodEdDSA, r.signer.key, map[string]any{"kid": nil}), ErrMalformed},
		"kid of another type":         {forged(jwt.SigningMethodEdDSA, r.signer.key, map[string]any{"kid": []string{r.signer.KeyID()}}), ErrMalformed},
		"critical extension":          {forged(jwt.SigningMethodEdDSA, r.signer.key, map[string]any{"crit": []string{"b64"}}), ErrMalformed},
		"unknown key":                 {byStranger, ErrUnknownKey},
		"kid of a trusted key":        {forged(jwt.SigningMethodEdDSA, stranger.key, nil), ErrMalformed},
		"kid as a path":               {forged(jwt.SigningMethodEdDSA, r.signer.key, map[string]any{"kid": "../token.pub"}), ErrUnknownKey},
		"another cluster":             {eddsa(func(c *Claims) { c.Audience = jwt.ClaimStrings{ulid.Make().String()} }), ErrOtherCluster},
		"two clusters":                {eddsa(func(c *Claims) { c.Audience = append(c.Audience, ulid.Make().String()) }), ErrOtherCluster},
		"no audience":                 {eddsa(func(c *Claims) { c.Audience = nil }), ErrMalformed},
		"another issuer":              {eddsa(func(c *Claims) { c.Issuer = "else" }), ErrMalformed},
		"no subject":                  {eddsa(func(c *Claims) { c.Subject = "" }), ErrMalformed},
		"subject with a line break":   {eddsa(func(c *Claims) { c.Subject = "a\nb" }), ErrMalformed},
		"no id":                       {eddsa(func(c *Claims) { c.ID = "" }), ErrMalformed},
		"no iat":                      {eddsa(func(c *Claims) { c.IssuedAt = nil }), ErrMalformed},
		"no nbf":                      {eddsa(func(c *Claims) { c.NotBefore = nil }), ErrMalformed},
		"no exp":                      {eddsa(func(c *Claims) { c.ExpiresAt = nil }), ErrMalformed},
		"expired":                     {eddsa(func(c *Claims) { c.ExpiresAt = ago(Leeway) }), ErrTime},
		"not valid yet":               {eddsa(func(c *Claims) { c.NotBefore = ago(-Leeway - time.Second) }), ErrTime},
		"issued in the future":        {eddsa(func(c *Claims) { c.IssuedAt = ago(-Leeway - time.Second) }), ErrTime},
		"lives too long":              {eddsa(func(c *Claims) { c.ExpiresAt = ago(-MaxLifetime - time.Second) }), ErrTime},
		"old, lives too long":         {eddsa(func(c *Claims) { c.IssuedAt = ago(20 * time.Hour) }), ErrTime},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := r.verifier.Verify(c.text)
			requireFault(t, err, c.want)
			require.Equal(t, access.Caller{}, caller)
			for _, part := range strings.Split(c.text, ".") {
				require.True(t, len(part) < 8 || !strings.Contains(err.Error(), part), "the error shows the token")
			}
		})
	}
	for name, text := range map[string]string{
		"expired within the leeway":   eddsa(func(c *Claims) { c.ExpiresAt = ago(Leeway - time.Second) }),
		"not yet within the leeway":   eddsa(func(c *Claims) { c.NotBefore, c.IssuedAt = ago(-Leeway), ago(-Leeway) }),
		"lives exactly twelve hours":  eddsa(func(c *Claims) { c.ExpiresAt = ago(-MaxLifetime) }),
		"nothing changed, to compare": good,
	} {
		_, err := r.verifier.Verify(text)
		require.NoError(t, err, name)
	}
}

// A changed byte anywhere makes a token worthless.
func TestTamperedTokens(t *testing.T) {
	r := newRig(t)
	text, err := r.signer.Sign(r.claims())
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		b := []byte(text)
		i := rapid.IntRange(0, len(b)-1).Draw(rt, "at")
		b[i] = rapid.Byte().Filter(func(c byte) bool { return c != b[i] }).Draw(rt, "byte")
		if _, err := r.verifier.Verify(string(b)); err == nil {
			rt.Fatalf("accepted with byte %d changed", i)
		}
	})
}

func TestKeysFollowTheFiles(t *testing.T) {
	r := newRig(t)
	text, err := r.signer.Sign(r.claims())
	require.NoError(t, err)
	other := filepath.Join(r.dir, "other")
	second := r.key(t, other)
	require.NoError(t, os.Rename(filepath.Join(other, PublicFile), filepath.Join(r.dir, "second.pub")))
	bySecond, err := second.Sign(r.claims())
	require.NoError(t, err)

	_, err = r.verifier.Verify(bySecond)
	requireFault(t, err, ErrUnknownKey)
	r.clock = r.clock.Add(rereadTime)
	_, err = r.verifier.Verify(bySecond)
	require.NoError(t, err, "a new key is found without a restart")
	require.Equal(t, 2, r.keys.Count())

	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "second.pub"), []byte("spoilt"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "README"), []byte("no key"), 0o600))
	r.clock = r.clock.Add(rereadTime)
	_, err = r.verifier.Verify(bySecond)
	requireFault(t, err, ErrUnknownKey)
	_, err = r.verifier.Verify(text)
	require.NoError(t, err, "the others stay")

	require.NoError(t, os.Remove(filepath.Join(r.dir, PublicFile)))
	r.clock = r.clock.Add(rereadTime)
	_, err = r.verifier.Verify(text)
	requireFault(t, err, ErrUnknownKey)
}

func TestKeyFaultsAtTheStart(t *testing.T) {
	dir := t.TempDir()
	_, err := Generate(dir)
	require.NoError(t, err)
	open := func(paths ...string) error {
		_, err := OpenKeys(paths, time.Now, slog.New(slog.DiscardHandler))
		return err
	}
	require.NoError(t, open(filepath.Join(dir, PublicFile)))
	require.ErrorIs(t, open(filepath.Join(dir, "none")), os.ErrNotExist)
	require.ErrorContains(t, open(filepath.Join(dir, PrivateFile)), "is not one PEM block", "a private key does not lie on a daemon")
	require.ErrorContains(t, open("/dev/zero"), "is not one PEM block")
	crowd := t.TempDir()
	for i := range MaxKeys + 1 {
		sub := filepath.Join(crowd, "k"+string(rune('A'+i/26))+string(rune('a'+i%26)))
		_, err := Generate(sub)
		require.NoError(t, err)
		require.NoError(t, os.Rename(filepath.Join(sub, PublicFile), sub+PublicSuffix))
	}
	require.ErrorContains(t, open(crowd), "more than 64")
}

func TestKeyFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "key")
	_, err := Generate(dir)
	require.NoError(t, err)
	path := filepath.Join(dir, PrivateFile)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = Generate(dir)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, os.Chmod(path, 0o640))
	_, err = ReadSigner(path)
	require.ErrorContains(t, err, "others may read")
	_, err = ReadSigner(filepath.Join(dir, PublicFile))
	require.Error(t, err)
}

// The thumbprint is that of RFC 8037, appendix A.3.
func TestKeyID(t *testing.T) {
	public := ed25519.PublicKey{
		0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
		0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
	}
	require.Equal(t, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", KeyID(public))
}

// ledger records, or fails to.
type ledger struct {
	rows []cluster.AuditRecord
	err  error
}

func (l *ledger) Record(_ context.Context, r cluster.AuditRecord) error {
	if l.err == nil {
		l.rows = append(l.rows, r)
	}
	return l.err
}

func TestGrant(t *testing.T) {
	r := newRig(t)
	audit := &ledger{}
	g := Granter{Cluster: r.cluster, Node: cluster.NewNodeID(), Epoch: func() fsm.Epoch { return 7 }, Keys: r.keys, Audit: audit, Now: r.now}
	ask := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/v1/tokens/grants", strings.NewReader(body))
		req = req.WithContext(access.WithCaller(req.Context(), access.NewCaller(access.BySocket, "", "")))
		g.Routes()[0].Handler.ServeHTTP(w, req)
		return w
	}
	body := func(kid, subject, permissions, ttl string) string {
		return `{"kid":"` + kid + `","subject":"` + subject + `","permissions":[` + permissions + `],"ttl_seconds":` + ttl + `}`
	}
	id := r.signer.KeyID()
	w := ask(body(id, "ci@build-1", `"run.submit","run.read"`, "43200"))
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	require.Len(t, audit.rows, 1)
	require.Equal(t, []any{"socket", "token", "ci@build-1", "accepted", g.Node, fsm.Epoch(7)},
		[]any{audit.rows[0].Actor, audit.rows[0].Action, audit.rows[0].Target, audit.rows[0].Outcome, audit.rows[0].Node, audit.rows[0].Epoch})
	require.Contains(t, audit.rows[0].Detail, "run.submit,run.read, until 2026-11-30T00:00:00Z, key "+id)

	for name, c := range map[string]struct{ body, code string }{
		"unknown permission":   {body(id, "ci", `"run.everything"`, "3600"), "FY-API-001"},
		"public":               {body(id, "ci", `""`, "3600"), "FY-API-001"},
		"no permission":        {body(id, "ci", ``, "3600"), "FY-API-001"},
		"permission twice":     {body(id, "ci", `"run.read","run.read"`, "3600"), "FY-API-001"},
		"no subject":           {body(id, "", `"run.read"`, "3600"), "FY-API-001"},
		"subject with a space": {body(id, "c i", `"run.read"`, "3600"), "FY-API-001"},
		"too long":             {body(id, "ci", `"run.read"`, "43201"), "FY-API-001"},
		"far too long":         {body(id, "ci", `"run.read"`, "9223372036854775807"), "FY-API-001"},
		"too short":            {body(id, "ci", `"run.read"`, "59"), "FY-API-001"},
		"negative":             {body(id, "ci", `"run.read"`, "-3600"), "FY-API-001"},
		"far below zero":       {body(id, "ci", `"run.read"`, "-9223372037"), "FY-API-001"}, // 292 years as nanoseconds of 64 bits
		"unknown key":          {body("x", "ci", `"run.read"`, "3600"), "FY-AUTH-008"},
		"a field too many":     {`{"key":"x"}`, "FY-API-001"},
	} {
		w := ask(c.body)
		require.Contains(t, w.Body.String(), c.code, name)
	}
	require.Len(t, audit.rows, 1, "nothing refused is recorded as granted")

	audit.err = errors.New("PostgreSQL is down")
	require.Equal(t, http.StatusInternalServerError, ask(body(id, "ci", `"run.read"`, "3600")).Code, "no token without its record")
	g.Keys = nil
	require.Contains(t, ask(body(id, "ci", `"run.read"`, "3600")).Body.String(), "accepts no tokens")
}
