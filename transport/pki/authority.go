// Authority: the small certificate authority of one cluster, run by its operator.

package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/oklog/ulid/v2"
)

// Names of the authority's files.
const (
	CAFile    = "ca.crt"
	CAKeyFile = "ca.key"
)

// How long certificates live unless the caller says otherwise, and how far back
// they begin, so that a clock that is behind does not refuse a fresh one.
const (
	AuthorityLifetime   = 10 * 365 * 24 * time.Hour
	CertificateLifetime = 365 * 24 * time.Hour
	backdate            = time.Hour
)

// Validity is the span in which a certificate is accepted. A zero NotBefore is
// one hour ago, a zero NotAfter one lifetime from now.
type Validity struct{ NotBefore, NotAfter time.Time }

func (v Validity) or(life time.Duration) Validity {
	now := time.Now()
	if v.NotBefore.IsZero() {
		v.NotBefore = now.Add(-backdate)
	}
	if v.NotAfter.IsZero() {
		v.NotAfter = now.Add(life)
	}
	return v
}

// Authority signs the certificates of one cluster. Its key never leaves the operator's machine.
type Authority struct {
	cluster fsm.ClusterID
	cert    *x509.Certificate
	key     ed25519.PrivateKey
}

// AuthorityOptions vary a new authority. The zero value mints a cluster id and lasts AuthorityLifetime.
type AuthorityOptions struct {
	Cluster  fsm.ClusterID
	Validity Validity
}

// NewAuthority creates an authority and, unless dir is empty, writes ca.crt
// (0600) and ca.key (0600) into dir (0700). It refuses to replace either file.
func NewAuthority(dir string, o AuthorityOptions) (*Authority, error) {
	if o.Cluster.IsZero() {
		o.Cluster = fsm.ClusterID(ulid.Make())
	}
	name, err := url.Parse(uriScheme + "://" + o.Cluster.String())
	if err != nil {
		return nil, fmt.Errorf("authority name: %w", err)
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority key: %w", err)
	}
	v := o.Validity.or(AuthorityLifetime)
	cert, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "forgeyard " + o.Cluster.String()},
		NotBefore:             v.NotBefore,
		NotAfter:              v.NotAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:                  []*url.URL{name},
	}, nil, pub, key)
	if err != nil {
		return nil, err
	}
	a := &Authority{cluster: o.Cluster, cert: cert, key: key}
	if dir == "" {
		return a, nil
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return a, writePair(dir, CAFile, a.CertPEM(), CAKeyFile, keyPEM)
}

// LoadAuthority reads the authority that NewAuthority wrote into dir. Errors match ErrFiles.
func LoadAuthority(dir string) (*Authority, error) {
	certPEM, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, ErrFiles.with(err, "the authority's certificate cannot be read")
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, CAKeyFile))
	if err != nil {
		return nil, ErrFiles.with(err, "the authority's key cannot be read")
	}
	certs, err := decodeCerts(certPEM)
	if err != nil {
		return nil, ErrFiles.with(err, "%s", CAFile)
	}
	key, err := decodeKey(keyPEM)
	if err != nil {
		return nil, ErrFiles.with(err, "%s", CAKeyFile)
	}
	cert := certs[0]
	if pub, ok := cert.PublicKey.(ed25519.PublicKey); !ok || !pub.Equal(key.Public()) {
		return nil, ErrFiles.with(nil, "%s and %s in %s do not belong together", CAFile, CAKeyFile, dir)
	}
	c, err := clusterOf(cert)
	if err != nil {
		return nil, err
	}
	return &Authority{cluster: c, cert: cert, key: key}, nil
}

// Cluster is the cluster whose certificates this authority signs.
func (a *Authority) Cluster() fsm.ClusterID { return a.cluster }

// CertPEM is the authority's certificate, which every peer trusts.
func (a *Authority) CertPEM() []byte { return encodeCert(a.cert) }

// Issue signs a certificate with a fresh key. A zero Subject.Cluster means the
// authority's; another cluster's is refused. A certificate never outlives its authority.
func (a *Authority) Issue(s Subject, v Validity) (*Issued, error) {
	if s.Cluster.IsZero() {
		s.Cluster = a.cluster
	}
	if s.Cluster != a.cluster {
		return nil, ErrCluster.with(nil, "this is the authority of cluster %s; it signs nothing for %s", a.cluster, s.Cluster)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	name, err := s.uri()
	if err != nil {
		return nil, fmt.Errorf("subject %s: %w", s, err)
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if s.Kind == KindNode {
		usage = append(usage, x509.ExtKeyUsageServerAuth)
	}
	v = v.or(CertificateLifetime)
	if v.NotAfter.After(a.cert.NotAfter) {
		v.NotAfter = a.cert.NotAfter
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate key: %w", err)
	}
	cert, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: string(s.Kind) + " " + s.ID},
		NotBefore:   v.NotBefore,
		NotAfter:    v.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usage,
		URIs:        []*url.URL{name},
	}, a.cert, pub, a.key)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Issued{Subject: s, Certificate: cert, CertPEM: encodeCert(cert), KeyPEM: keyPEM}, nil
}

// Issued is a fresh certificate with its key.
type Issued struct {
	Subject     Subject
	Certificate *x509.Certificate
	CertPEM     []byte
	KeyPEM      []byte
}

// Write stores <name>.crt and <name>.key (0600) in dir (0700) and returns
// their paths. It refuses to replace either file.
func (i *Issued) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = name+".crt", name+".key"
	if err := writePair(dir, certFile, i.CertPEM, keyFile, i.KeyPEM); err != nil {
		return "", "", err
	}
	return filepath.Join(dir, certFile), filepath.Join(dir, keyFile), nil
}

// sign completes the template with a serial number and signs it; a nil parent means self-signed.
func sign(t, parent *x509.Certificate, pub ed25519.PublicKey, key ed25519.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	t.SerialNumber = serial
	if parent == nil {
		parent = t
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, pub, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

func encodeCert(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func encodeKey(k ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func decodeCerts(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
		if b.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("unexpected PEM block %q", b.Type)
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

func decodeKey(data []byte) (ed25519.PrivateKey, error) {
	b, _ := pem.Decode(data)
	if b == nil {
		return nil, errors.New("no key in PEM form")
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key of type %T; Ed25519 is expected", k)
	}
	return key, nil
}
