// Verify: the one judgement of a peer's certificate, before anything of the peer is read (§56, §57, §58).

package pki

import (
	"crypto/x509"
	"errors"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
)

// Purpose is what the peer uses its certificate for.
type Purpose uint8

// A client dials, a server is dialled.
const (
	AsClient Purpose = 1
	AsServer Purpose = 2
)

// Expect says which peers are acceptable.
type Expect struct {
	Purpose Purpose
	Kind    Kind      // the only kind accepted
	ID      string    // the only id accepted; empty for any
	Now     time.Time // the time at which the certificate must be valid
}

// Verify judges a peer's certificate chain, leaf first: exactly one name, of
// this cluster, of the expected kind and id, signed by a trusted authority,
// valid now, issued for the purpose. The error is an *Error. The checks of the
// names come first only because their reasons say more; none is optional.
func (i *Identity) Verify(chain []*x509.Certificate, want Expect) (Subject, error) {
	m := i.fresh()
	s, err := judge(m.subject.Cluster, m.roots, chain, want)
	if err == nil && want.Kind == "" {
		return s, ErrKind.with(nil, "no kind of certificate is expected here")
	}
	return s, err
}

// judge is every check; an empty Kind or ID in want accepts any.
func judge(cluster fsm.ClusterID, roots *x509.CertPool, chain []*x509.Certificate, want Expect) (Subject, error) {
	if len(chain) == 0 {
		return Subject{}, ErrMissing
	}
	s, err := SubjectOf(chain[0])
	if err != nil {
		return Subject{}, err
	}
	if s.Cluster != cluster {
		return s, ErrCluster.with(nil, "the certificate is of cluster %s, this is cluster %s", s.Cluster, cluster)
	}
	if err := verifyChain(roots, chain, want); err != nil {
		return s, err
	}
	if want.Kind != "" && s.Kind != want.Kind {
		return s, ErrKind.with(nil, "a certificate of kind %s cannot be used where one of kind %s is expected", s.Kind, want.Kind)
	}
	if want.ID != "" && s.ID != want.ID {
		return s, ErrID.with(nil, "expected %s, the certificate is of %s", want.ID, s.ID)
	}
	return s, nil
}

// Usable judges this process's own certificate as its peers will, so that a
// certificate nobody would accept ends the start and not, silently, every
// handshake. The error is an *Error.
func (i *Identity) Usable(kind Kind, now time.Time) error {
	_, err := i.Verify([]*x509.Certificate{i.Leaf()}, Expect{Purpose: AsClient, Kind: kind, Now: now})
	return err
}

func verifyChain(roots *x509.CertPool, chain []*x509.Certificate, want Expect) error {
	leaf := chain[0]
	if want.Now.Before(leaf.NotBefore) || want.Now.After(leaf.NotAfter) {
		return ErrExpired.with(nil, "the certificate is valid from %s to %s; it is now %s",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), want.Now.UTC().Format(time.RFC3339))
	}
	usage := x509.ExtKeyUsageClientAuth
	if want.Purpose == AsServer {
		usage = x509.ExtKeyUsageServerAuth
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: want.Now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err == nil {
		return nil
	}
	var inv x509.CertificateInvalidError
	if errors.As(err, &inv) {
		switch inv.Reason {
		case x509.Expired:
			return ErrExpired.with(err, "the certificate's authority is not valid at this time")
		case x509.IncompatibleUsage:
			return ErrPurpose.with(err, "the certificate does not allow this use")
		}
	}
	return ErrAuthority.with(err, "the certificate is not signed by an authority of this cluster")
}
