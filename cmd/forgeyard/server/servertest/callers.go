// Package servertest makes what callers of the API prove themselves with: a cluster's authority, its certificates and its tokens.
package servertest

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/cluster/access/token"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Cluster is one cluster's means of proof, and a node of it that serves the API.
type Cluster struct {
	CA       *pki.Authority
	Node     pki.Subject
	Identity *pki.Identity // the node's
	Signer   token.Signer
	Tokens   *token.Verifier // knows the signer's key
}

// New makes a cluster.
func New(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{Node: pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make()))}
	var err error
	c.CA, err = pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	node, err := c.CA.Issue(c.Node, pki.Validity{})
	require.NoError(t, err)
	c.Identity, err = node.Identity(c.CA)
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = token.Generate(dir)
	require.NoError(t, err)
	c.Signer, err = token.ReadSigner(filepath.Join(dir, token.PrivateFile))
	require.NoError(t, err)
	keys, err := token.OpenKeys([]string{dir}, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c.Tokens = token.NewVerifier(c.CA.Cluster(), keys, time.Now)
	return c
}

// Client makes a client that trusts the cluster and shows a certificate, nil for none.
func (c *Cluster) Client(t testing.TB, own *tls.Certificate) *http.Client {
	t.Helper()
	trust, err := pki.ParseAuthorities(c.CA.CertPEM())
	require.NoError(t, err)
	tr := &http.Transport{TLSClientConfig: trust.ClientTLS(own, time.Now), ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Certificate is issued by an authority, which may be another cluster's.
func Certificate(t testing.TB, ca *pki.Authority, s pki.Subject, v pki.Validity) *tls.Certificate {
	t.Helper()
	issued, err := ca.Issue(s, v)
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(issued.CertPEM, issued.KeyPEM)
	require.NoError(t, err)
	return &pair
}

// Claims are good for an hour, and for reading runs as "ci"; change spoils them.
func (c *Cluster) Claims(change func(*token.Claims)) token.Claims {
	now := time.Now().Truncate(time.Second)
	claims := token.Claims{RegisteredClaims: jwt.RegisteredClaims{
		Issuer: token.Issuer, Subject: "ci", Audience: jwt.ClaimStrings{c.CA.Cluster().String()}, ID: ulid.Make().String(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour)),
	}, Permissions: []access.Permission{access.RunRead}}
	if change != nil {
		change(&claims)
	}
	return claims
}

// Token is signed with the cluster's key; see Claims.
func (c *Cluster) Token(t testing.TB, change func(*token.Claims)) string {
	t.Helper()
	text, err := c.Signer.Sign(c.Claims(change))
	require.NoError(t, err)
	return text
}
