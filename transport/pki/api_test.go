// The API's side of certificates: whom a server takes for whom, and which server a client believes.

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
)

func TestAPICertificates(t *testing.T) {
	ca, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	next, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: ca.Cluster()})
	require.NoError(t, err)
	other, err := pki.NewAuthority("", pki.AuthorityOptions{})
	require.NoError(t, err)
	node := pki.Node(fsm.ClusterID{}, fsm.NodeID(ulid.Make()))
	issue := func(a *pki.Authority, s pki.Subject) *pki.Issued {
		issued, err := a.Issue(s, pki.Validity{})
		require.NoError(t, err)
		return issued
	}
	chain := func(i *pki.Issued) []*x509.Certificate { return []*x509.Certificate{i.Certificate} }
	id, err := issue(ca, node).Identity(ca)
	require.NoError(t, err)
	now := time.Now()

	for _, kind := range []pki.Kind{pki.KindAdmin, pki.KindAgent} {
		s, err := id.VerifyClient(chain(issue(ca, pki.Subject{Kind: kind, ID: "x"})), now)
		require.NoError(t, err)
		require.Equal(t, kind, s.Kind)
	}
	_, err = id.VerifyClient(nil, now)
	require.ErrorIs(t, err, pki.ErrMissing)
	_, err = id.VerifyClient(chain(issue(other, pki.Subject{Kind: pki.KindAdmin, ID: "x"})), now)
	require.ErrorIs(t, err, pki.ErrCluster)
	_, err = id.VerifyClient(chain(issue(ca, node)), now.Add(2*pki.CertificateLifetime))
	require.ErrorIs(t, err, pki.ErrExpired)
	_, err = id.Verify(chain(issue(ca, node)), pki.Expect{Purpose: pki.AsClient, Now: now})
	require.ErrorIs(t, err, pki.ErrKind, "a port that expects no kind accepts none")
	require.EqualValues(t, tls.VersionTLS13, id.ServerTLS().MinVersion)

	trust, err := pki.ParseAuthorities(append(ca.CertPEM(), next.CertPEM()...))
	require.NoError(t, err)
	require.Equal(t, ca.Cluster(), trust.Cluster())
	serve := func(i *pki.Issued) error {
		return trust.ClientTLS(nil, time.Now).VerifyConnection(tls.ConnectionState{PeerCertificates: chain(i)})
	}
	require.NoError(t, serve(issue(ca, node)))
	require.NoError(t, serve(issue(next, node)), "during a rotation")
	require.ErrorIs(t, serve(issue(other, node)), pki.ErrCluster)
	require.ErrorIs(t, serve(issue(ca, pki.Subject{Kind: pki.KindAdmin, ID: "x"})), pki.ErrPurpose)

	_, err = pki.ParseAuthorities(append(ca.CertPEM(), other.CertPEM()...))
	require.ErrorIs(t, err, pki.ErrCluster, "authorities of two clusters")
	_, err = pki.ParseAuthorities(issue(ca, node).CertPEM)
	require.ErrorIs(t, err, pki.ErrFiles, "a node is no authority")
	_, err = pki.ParseAuthorities([]byte("x"))
	require.ErrorIs(t, err, pki.ErrFiles)
}
