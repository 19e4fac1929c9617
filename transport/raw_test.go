// Raw: a peer that keeps no rules, and certificates that no authority should issue.

package transport_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
)

// forger signs what an authority would refuse to sign.
type forger struct {
	*pki.Authority
	cert *x509.Certificate
	key  any
}

func newForger(t *testing.T) *forger {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.NewAuthority(dir, pki.AuthorityOptions{Validity: early()})
	require.NoError(t, err)
	f := &forger{Authority: ca}
	der := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		p, _ := pem.Decode(b)
		return p.Bytes
	}
	f.cert, err = x509.ParseCertificate(der(pki.CAFile))
	require.NoError(t, err)
	f.key, err = x509.ParsePKCS8PrivateKey(der(pki.CAKeyFile))
	require.NoError(t, err)
	return f
}

// forge signs a certificate with these names; change may spoil it further.
func (f *forger) forge(t *testing.T, uris []string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, s := range uris {
		u, err := url.Parse(s)
		require.NoError(t, err)
		c.URIs = append(c.URIs, u)
	}
	if change != nil {
		change(c)
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, c, f.cert, pub, f.key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// honest is a good certificate for raw use.
func (f *forger) honest(t *testing.T, s pki.Subject) *tls.Certificate {
	t.Helper()
	i, err := f.Issue(s, early())
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(i.CertPEM, i.KeyPEM)
	require.NoError(t, err)
	return &pair
}

// rawConn is a QUIC connection without any of the product's rules.
type rawConn struct {
	t *testing.T
	*quic.Conn
}

// dialRaw connects with a certificate, or with none.
func dialRaw(t *testing.T, to net.Addr, cert *tls.Certificate, protocols ...string) (*rawConn, error) {
	t.Helper()
	tr := &quic.Transport{Conn: loopback(t)}
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, tr.Conn.Close())
	})
	if len(protocols) == 0 {
		protocols = []string{"forgeyard/1"}
	}
	conf := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: protocols}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := tr.Dial(ctx, to, conf, &quic.Config{MaxIdleTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return &rawConn{t, c}, nil
}

// frame writes a frame by hand.
func frame(fam, version byte, payload []byte) []byte {
	b := []byte{fam, version}
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

const helloFamily = 0x48

// cborOf encodes as any build would.
func cborOf(t *testing.T, v any) []byte {
	t.Helper()
	b, err := cbor.Marshal(v)
	require.NoError(t, err)
	return b
}

// helloOf is an acceptable hello of a subject.
func helloOf(s pki.Subject) transport.Hello {
	return transport.Hello{
		Cluster: s.Cluster, Generation: 1, ID: s.ID, Incarnation: fsm.IncarnationID(ulid.Make()), ProtocolMin: 1, ProtocolMax: 1,
	}
}

// hello says hello and waits for its answer.
func (c *rawConn) hello(h transport.Hello) error {
	s, err := c.OpenStreamSync(c.t.Context())
	require.NoError(c.t, err)
	if _, err := s.Write(frame(helloFamily, 1, cborOf(c.t, map[int]any{1: h}))); err != nil {
		return err
	}
	require.NoError(c.t, s.SetReadDeadline(time.Now().Add(10*time.Second)))
	if n, err := s.Read(make([]byte, 4096)); n == 0 {
		return err
	}
	return nil
}

// send opens a stream, writes bytes, ends it, and returns how the peer's side of it ends.
func (c *rawConn) send(b []byte) error {
	s, err := c.OpenStreamSync(c.t.Context())
	require.NoError(c.t, err)
	if _, err := s.Write(b); err != nil {
		return err
	}
	_ = s.Close() // fails when the peer has answered and stopped listening already; its answer is what counts
	require.NoError(c.t, s.SetReadDeadline(time.Now().Add(10*time.Second)))
	if n, err := s.Read(make([]byte, 4096)); n == 0 {
		return err
	}
	return nil
}

// closedWith waits for the end of the connection and returns the peer's reason.
func (c *rawConn) closedWith() (transport.Code, string) {
	c.t.Helper()
	select {
	case <-c.Context().Done():
	case <-time.After(10 * time.Second):
		require.FailNow(c.t, "the connection stays open")
	}
	var app *quic.ApplicationError
	require.ErrorAs(c.t, context.Cause(c.Context()), &app)
	require.True(c.t, app.Remote)
	return transport.Code(app.ErrorCode), app.ErrorMessage
}
