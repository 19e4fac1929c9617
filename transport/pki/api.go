// The API's side: the same certificates over TCP, where a client may show one, and a client knows only the authority.

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// ServerTLS is the API listener's configuration: TLS 1.3 with this node's
// newest certificate. A client may show a certificate, and proves then that it
// has the key; whether it is acceptable is VerifyClient's answer for every
// request, because a refused handshake could not say why, and a certificate
// runs out while its connection stays open. Nothing is resumed.
func (i *Identity) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: i.GetCertificate, ClientAuth: tls.RequestClientCert,
		SessionTicketsDisabled: true, NextProtos: []string{"h2", "http/1.1"},
	}
}

// VerifyClient judges the certificate of an API client: as Verify, but every
// kind is a subject, and what a kind may do is the caller's business.
func (i *Identity) VerifyClient(chain []*x509.Certificate, now time.Time) (Subject, error) {
	m := i.fresh()
	return judge(m.subject.Cluster, m.roots, chain, Expect{Purpose: AsClient, Now: now})
}

// Authorities is what an API client trusts: the authorities of one cluster.
type Authorities struct {
	cluster fsm.ClusterID
	roots   *x509.CertPool
}

// ParseAuthorities reads the PEM text of ca.crt; during a rotation it holds
// several certificates, all of one cluster. Errors match ErrFiles or ErrCluster.
func ParseAuthorities(caPEM []byte) (*Authorities, error) {
	certs, err := decodeCerts(caPEM)
	if err != nil {
		return nil, ErrFiles.with(err, "the authorities")
	}
	a := &Authorities{roots: x509.NewCertPool()}
	for _, c := range certs {
		id, err := clusterOf(c)
		if err != nil {
			return nil, err
		}
		if !a.cluster.IsZero() && id != a.cluster {
			return nil, ErrCluster.with(nil, "the authorities are of clusters %s and %s", a.cluster, id)
		}
		a.cluster = id
		a.roots.AddCert(c)
	}
	return a, nil
}

// clusterOf reads whose authority a certificate is.
func clusterOf(c *x509.Certificate) (fsm.ClusterID, error) {
	if !c.IsCA || len(c.URIs) != 1 || c.URIs[0].Scheme != uriScheme {
		return fsm.ClusterID{}, ErrFiles.with(nil, "the certificate is not the authority of a cluster")
	}
	id, err := fsm.ParseClusterID(c.URIs[0].Host)
	if err != nil {
		return fsm.ClusterID{}, ErrFiles.with(err, "the authority names no cluster")
	}
	return id, nil
}

// Cluster is the cluster of the authorities.
func (a *Authorities) Cluster() fsm.ClusterID { return a.cluster }

// ClientTLS is the configuration of an API client: the server must be a node of
// the cluster, whatever its address. Certificates of nodes name no host, so the
// standard check of the host's name cannot apply; this one takes its place. own
// is the client's certificate, nil for none.
func (a *Authorities) ClientTLS(own *tls.Certificate, now func() time.Time) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, // replaced by VerifyConnection, which runs on every handshake
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := judge(a.cluster, a.roots, s.PeerCertificates, Expect{Purpose: AsServer, Kind: KindNode, Now: now()})
			return err
		},
	}
	if own != nil {
		// Always shown: the server sends no list of authorities to choose by.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	return c
}
