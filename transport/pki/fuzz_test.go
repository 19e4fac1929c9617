// Fuzzing of certificates: the name inside, and the PEM files that operators put in place.

package pki

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// A certificate of our authority says a subject only by the one canonical text.
func FuzzCertificateName(f *testing.F) {
	const good = "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/agent/a-1"
	for name, uri := range map[string]string{
		"agent": good, "admin": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/admin/ops", "node": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/node/01M8M7W1DW74Q8ZFNF70DAVE22",
		"scheme in capitals": "FORGEYARD://01M8M7W1DW74Q8ZFNF70DAVE21/agent/a-1", "empty fragment": good + "#", "empty query": good + "?",
		"escaped": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/agent/a%2d1", "user": "forgeyard://x@01M8M7W1DW74Q8ZFNF70DAVE21/agent/a-1",
		"port": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21:7443/agent/a-1", "lower case": "forgeyard://01m8m7w1dw74q8zfnf70dave21/agent/a-1", "nothing": "",
	} {
		corpus.Add(f, name, uri, byte(6), false)
	}
	corpus.Add(f, "a DNS name", good, byte(2), false)
	corpus.Add(f, "a directory name beside it", good, byte(6), true)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(f, err)
	// What Go's parser passes over: a name of a kind that it does not know.
	strange := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 8, Bytes: []byte{0x2a, 0x03}}
	f.Fuzz(func(t *testing.T, uri string, tag byte, beside bool) {
		names := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: int(tag % 9), Bytes: []byte(uri)}}
		if beside {
			names = append(names, strange)
		}
		san, err := asn1.Marshal(names)
		require.NoError(t, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(1), ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: san}},
		}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
		require.NoError(t, err)
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		s, err := SubjectOf(cert)
		if err != nil {
			require.ErrorIs(t, err, ErrSAN)
			require.Zero(t, s)
			return
		}
		require.Equal(t, uri, s.String(), "another spelling of a subject")
		require.Equal(t, byte(6), tag%9)
		require.False(t, beside, "a name beside the subject")
		require.NoError(t, s.Validate())
	})
}

func FuzzParseFiles(f *testing.F) {
	a, err := NewAuthority("", AuthorityOptions{})
	require.NoError(f, err)
	i, err := a.Issue(Subject{Kind: KindAgent, ID: "a-1"}, Validity{})
	require.NoError(f, err)
	keyPEM, err := encodeKey(a.key)
	require.NoError(f, err)
	two := append(bytes.Clone(a.CertPEM()), a.CertPEM()...)
	for name, b := range map[string][]byte{
		"authority": a.CertPEM(), "authority's key": keyPEM, "two authorities": two, "agent": i.CertPEM, "key": i.KeyPEM, "cut": i.CertPEM[:len(i.CertPEM)-40],
		"text before": append([]byte("Subject: x\n"), a.CertPEM()...), "no base64": []byte("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"),
		"empty block": []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), "another block": []byte("-----BEGIN X-----\nAAAA\n-----END X-----\n"), "nothing": {},
	} {
		corpus.Add(f, name, b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := ParseAuthorities(b); err == nil {
			require.False(t, got.Cluster().IsZero())
		}
		if _, err := NewIdentity(b, i.KeyPEM, a.CertPEM()); err == nil {
			certs, err := decodeCerts(b)
			require.NoError(t, err)
			require.Equal(t, i.Certificate.PublicKey, certs[0].PublicKey, "a certificate of another key")
		}
		if key, err := decodeKey(b); err == nil {
			again, err := encodeKey(key)
			require.NoError(t, err)
			back, err := decodeKey(again)
			require.NoError(t, err)
			require.True(t, key.Equal(back))
		}
	})
}
