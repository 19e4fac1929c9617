// The authority, the identity and the judgement of certificates.

package pki_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
)

func nodeID() fsm.NodeID { return fsm.NodeID(ulid.Make()) }

func authority(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(dir, pki.AuthorityOptions{})
	require.NoError(t, err)
	return a
}

func issue(t *testing.T, a *pki.Authority, s pki.Subject) *pki.Issued {
	t.Helper()
	i, err := a.Issue(s, pki.Validity{})
	require.NoError(t, err)
	return i
}

func expect(kind pki.Kind, as pki.Purpose) pki.Expect {
	return pki.Expect{Kind: kind, Purpose: as, Now: time.Now()}
}

func TestAuthoritySurvivesItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	a := authority(t, dir)
	b, err := pki.LoadAuthority(dir)
	require.NoError(t, err)
	require.Equal(t, a.Cluster(), b.Cluster())

	n := nodeID()
	i := issue(t, b, pki.Node(a.Cluster(), n))
	id, err := i.Identity(a)
	require.NoError(t, err)
	got, err := id.Verify([]*x509.Certificate{i.Certificate}, expect(pki.KindNode, pki.AsServer))
	require.NoError(t, err)
	require.Equal(t, pki.Node(a.Cluster(), n), got)

	_, err = pki.NewAuthority(dir, pki.AuthorityOptions{})
	require.ErrorIs(t, err, fs.ErrExist, "an authority is never replaced")
	_, err = pki.LoadAuthority(t.TempDir())
	require.ErrorIs(t, err, pki.ErrFiles)

	other := filepath.Join(t.TempDir(), "other")
	authority(t, other)
	key, err := os.ReadFile(filepath.Join(other, pki.CAKeyFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, pki.CAKeyFile), key, 0o600))
	_, err = pki.LoadAuthority(dir)
	require.ErrorIs(t, err, pki.ErrFiles, "certificate and key of two authorities")
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	a := authority(t, dir)
	_, _, err := issue(t, a, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}).Write(dir, "agent-1")
	require.NoError(t, err)
	st, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), st.Mode().Perm())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 4)
	for _, e := range entries {
		st, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), st.Mode().Perm(), e.Name())
	}
	_, _, err = issue(t, a, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}).Write(dir, "agent-1")
	require.ErrorIs(t, err, fs.ErrExist)
}

func TestIssueRefuses(t *testing.T) {
	a := authority(t, "")
	for name, s := range map[string]pki.Subject{
		"another cluster":  pki.Node(fsm.ClusterID(ulid.Make()), nodeID()),
		"no node id":       {Kind: pki.KindNode, ID: "web-1"},
		"lower-case ULID":  {Kind: pki.KindNode, ID: "01m8m7w1dw74q8zfnf70dave21"},
		"unknown kind":     {Kind: "robot", ID: "x"},
		"no id":            {Kind: pki.KindAgent},
		"a path in the id": {Kind: pki.KindAgent, ID: "a/b"},
		"an escaped id":    {Kind: pki.KindAdmin, ID: "a%2Fb"},
		"a long id":        {Kind: pki.KindAdmin, ID: string(make([]byte, 65))},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Issue(s, pki.Validity{})
			require.Error(t, err)
		})
	}
}

func TestCertificateNeverOutlivesItsAuthority(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	a, err := pki.NewAuthority("", pki.AuthorityOptions{Validity: pki.Validity{NotAfter: end}})
	require.NoError(t, err)
	require.Equal(t, end, issue(t, a, pki.Node(a.Cluster(), nodeID())).Certificate.NotAfter)
}

// TestCertBindsNodeID: the id in the certificate is the only id of its holder (§57).
func TestCertBindsNodeID(t *testing.T) {
	a := authority(t, "")
	i := issue(t, a, pki.Node(a.Cluster(), nodeID()))
	id, err := i.Identity(a)
	require.NoError(t, err)
	want := expect(pki.KindNode, pki.AsServer)
	want.ID = nodeID().String()
	_, err = id.Verify([]*x509.Certificate{i.Certificate}, want)
	require.ErrorIs(t, err, pki.ErrID)
	want.ID = i.Subject.ID
	_, err = id.Verify([]*x509.Certificate{i.Certificate}, want)
	require.NoError(t, err)
}

// TestCertPurposeSeparated: each kind opens its own door and no other (§58).
func TestCertPurposeSeparated(t *testing.T) {
	a := authority(t, "")
	certs := map[pki.Kind]*pki.Issued{
		pki.KindNode:  issue(t, a, pki.Node(a.Cluster(), nodeID())),
		pki.KindAgent: issue(t, a, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}),
		pki.KindAdmin: issue(t, a, pki.Subject{Kind: pki.KindAdmin, ID: "alice"}),
	}
	id, err := certs[pki.KindNode].Identity(a)
	require.NoError(t, err)
	for shown, i := range certs {
		for wanted := range certs {
			for _, as := range []pki.Purpose{pki.AsClient, pki.AsServer} {
				_, err := id.Verify([]*x509.Certificate{i.Certificate}, expect(wanted, as))
				switch {
				case as == pki.AsServer && shown != pki.KindNode:
					require.ErrorIs(t, err, pki.ErrPurpose)
				case shown != wanted:
					require.ErrorIs(t, err, pki.ErrKind)
				default:
					require.NoError(t, err)
				}
			}
		}
	}
	_, err = id.Verify(nil, expect(pki.KindNode, pki.AsClient))
	require.ErrorIs(t, err, pki.ErrMissing)
}

func TestValidityIsCheckedAtTheGivenTime(t *testing.T) {
	a := authority(t, "")
	from, to := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	i, err := a.Issue(pki.Node(a.Cluster(), nodeID()), pki.Validity{NotBefore: from, NotAfter: to})
	require.NoError(t, err)
	id, err := i.Identity(a)
	require.NoError(t, err)
	for offset, want := range map[time.Duration]error{0: pki.ErrExpired, 90 * time.Minute: nil, 3 * time.Hour: pki.ErrExpired} {
		e := expect(pki.KindNode, pki.AsClient)
		e.Now = e.Now.Add(offset)
		_, err := id.Verify([]*x509.Certificate{i.Certificate}, e)
		require.ErrorIs(t, err, want)
	}
}

// TestHotRotation: replaced files are used by the next handshake, and old and
// new authority are trusted side by side until the operator ends the overlap.
func TestHotRotation(t *testing.T) {
	dir := t.TempDir()
	old := authority(t, "")
	next, err := pki.NewAuthority("", pki.AuthorityOptions{Cluster: old.Cluster()})
	require.NoError(t, err)
	n := nodeID()
	first := issue(t, old, pki.Node(old.Cluster(), n))
	certFile, keyFile, err := first.Write(dir, "node")
	require.NoError(t, err)
	caFile := filepath.Join(dir, "ca.crt")
	write := func(path string, data []byte) { require.NoError(t, os.WriteFile(path, data, 0o600)) }
	write(caFile, old.CertPEM())

	id, err := pki.Load(certFile, keyFile, caFile)
	require.NoError(t, err)
	require.Equal(t, pki.Fingerprint(first.Certificate), id.Fingerprint())
	reset := id.ResetKey("x")
	require.Equal(t, reset, id.ResetKey("x"))
	require.NotEqual(t, reset, id.ResetKey("y"))
	shown := func() [32]byte {
		c, err := id.GetCertificate(nil)
		require.NoError(t, err)
		return pki.Fingerprint(c.Leaf)
	}
	accepts := func(a *pki.Authority) error {
		_, err := id.Verify([]*x509.Certificate{issue(t, a, pki.Node(a.Cluster(), nodeID())).Certificate}, expect(pki.KindNode, pki.AsClient))
		return err
	}
	require.NoError(t, accepts(old))
	require.ErrorIs(t, accepts(next), pki.ErrAuthority)

	write(caFile, append(old.CertPEM(), next.CertPEM()...))
	require.NoError(t, accepts(old))
	require.NoError(t, accepts(next))

	second := issue(t, next, pki.Node(old.Cluster(), n))
	write(certFile, second.CertPEM) // half replaced: the pair does not fit
	require.Equal(t, pki.Fingerprint(first.Certificate), shown())
	require.ErrorIs(t, id.LastError(), pki.ErrFiles)
	write(keyFile, second.KeyPEM)
	require.Equal(t, pki.Fingerprint(second.Certificate), shown())
	require.NoError(t, id.LastError())

	write(caFile, next.CertPEM())
	require.ErrorIs(t, accepts(old), pki.ErrAuthority)

	alien := issue(t, next, pki.Node(old.Cluster(), nodeID()))
	write(certFile, alien.CertPEM)
	write(keyFile, alien.KeyPEM)
	require.ErrorIs(t, id.Reload(), pki.ErrID, "a running process cannot become another node")
	require.Equal(t, pki.Node(old.Cluster(), n), id.Subject())
	require.NoError(t, os.Remove(certFile))
	require.ErrorIs(t, id.Reload(), pki.ErrFiles)
	require.Equal(t, pki.Fingerprint(second.Certificate), shown())
}

func TestOwnCertificateMustNameOneHolder(t *testing.T) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	u, err := url.Parse(pki.Node(fsm.ClusterID(ulid.Make()), nodeID()).String())
	require.NoError(t, err)
	for _, names := range [][]*url.URL{nil, {u, u}} {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), URIs: names}, &x509.Certificate{SerialNumber: big.NewInt(1)}, pub, key)
		require.NoError(t, err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		_, err = pki.NewIdentity(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), cert)
		require.ErrorIs(t, err, pki.ErrSAN)
	}
}

func FuzzParseSubject(f *testing.F) {
	for name, s := range map[string]string{
		"node": pki.Node(fsm.ClusterID(ulid.Make()), nodeID()).String(), "agent": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/agent/a-1",
		"lower case": "forgeyard://01m8m7w1dw74q8zfnf70dave21/agent/a-1", "escaped": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/agent/a%2e",
		"no id": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/agent/", "dots": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/admin/..",
		"unknown kind": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/root/a", "a node of no ULID": "forgeyard://01M8M7W1DW74Q8ZFNF70DAVE21/node/a",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := pki.ParseSubject(s)
		if err == nil && got.String() != s {
			t.Fatalf("%q names %q as well", s, got)
		}
	})
}

func TestOwnCertificateIsJudgedAsPeersWould(t *testing.T) {
	a, stranger := authority(t, ""), authority(t, "")
	node := pki.Node(a.Cluster(), nodeID())
	own := func(i *pki.Issued, trusted *pki.Authority) *pki.Identity {
		id, err := i.Identity(trusted)
		require.NoError(t, err)
		return id
	}
	expired, err := a.Issue(node, pki.Validity{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)})
	require.NoError(t, err)
	good := own(issue(t, a, node), a)
	require.NoError(t, good.Usable(pki.KindNode, time.Now()))
	require.ErrorIs(t, good.Usable(pki.KindAgent, time.Now()), pki.ErrKind)
	require.ErrorIs(t, own(expired, a).Usable(pki.KindNode, time.Now()), pki.ErrExpired)
	require.ErrorIs(t, own(issue(t, a, node), stranger).Usable(pki.KindNode, time.Now()), pki.ErrAuthority)
}
