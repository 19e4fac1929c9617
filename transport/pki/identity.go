// Identity: this process's certificate, key and trusted authorities, re-read when the files change (§214).

package pki

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Identity is what a process shows to its peers and trusts in them. New
// handshakes see replaced files at once; a replacement that cannot be used, or
// that names another subject, is ignored and LastError tells why.
type Identity struct {
	certFile, keyFile, caFile string // empty when made from memory

	cur     atomic.Pointer[material]
	lastErr atomic.Pointer[Error]

	mu    sync.Mutex // one reload at a time
	stamp [3]fileStamp
}

// material is one consistent set of certificate, key and authorities.
type material struct {
	cert    tls.Certificate
	subject Subject
	roots   *x509.CertPool
}

type fileStamp struct {
	mod  time.Time
	size int64
}

// Load reads an identity from files. Errors match ErrFiles or ErrSAN.
func Load(certFile, keyFile, caFile string) (*Identity, error) {
	i := &Identity{certFile: certFile, keyFile: keyFile, caFile: caFile}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.read(); err != nil {
		return nil, err
	}
	return i, nil
}

// NewIdentity makes an identity from PEM texts; it is never re-read.
func NewIdentity(certPEM, keyPEM, caPEM []byte) (*Identity, error) {
	m, err := parse(certPEM, keyPEM, caPEM)
	if err != nil {
		return nil, err
	}
	i := &Identity{}
	i.cur.Store(m)
	return i, nil
}

// Identity is the issued certificate as an identity that trusts ca.
func (i *Issued) Identity(ca *Authority) (*Identity, error) {
	return NewIdentity(i.CertPEM, i.KeyPEM, ca.CertPEM())
}

// Subject is who this process is.
func (i *Identity) Subject() Subject { return i.cur.Load().subject }

// Leaf is the certificate now in use.
func (i *Identity) Leaf() *x509.Certificate { return i.cur.Load().cert.Leaf }

// Fingerprint is the SHA-256 of the certificate now in use.
func (i *Identity) Fingerprint() [32]byte { return Fingerprint(i.Leaf()) }

// Fingerprint is the SHA-256 of a certificate's DER form.
func Fingerprint(c *x509.Certificate) [32]byte { return sha256.Sum256(c.Raw) }

// GetCertificate serves the newest certificate (tls.Config).
func (i *Identity) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &i.fresh().cert, nil
}

// GetClientCertificate serves the newest certificate (tls.Config).
func (i *Identity) GetClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return &i.fresh().cert, nil
}

// ResetKey is derived from the private key and the socket's label, so that a restarted process on the
// same port can tell its peers at once that their old connections are dead.
func (i *Identity) ResetKey(label string) [32]byte {
	key := i.cur.Load().cert.PrivateKey.(ed25519.PrivateKey)
	mac := hmac.New(sha256.New, key.Seed())
	mac.Write([]byte("forgeyard quic stateless reset v1 " + label))
	return [32]byte(mac.Sum(nil))
}

// LastError is why the files on disk are not in use, or nil.
func (i *Identity) LastError() error {
	if e := i.lastErr.Load(); e != nil {
		return e
	}
	return nil
}

// Reload reads the files now. On an error the previous material stays in use.
func (i *Identity) Reload() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.certFile == "" {
		return nil
	}
	return i.read()
}

// fresh returns the newest usable material. A handshake is rare and three stat
// calls are cheap, so no watcher goroutine is needed.
func (i *Identity) fresh() *material {
	if i.certFile != "" {
		i.mu.Lock()
		if now, err := i.stamps(); err == nil && now != i.stamp {
			if err := i.read(); err != nil {
				// The pair may be half replaced: look again at the next handshake.
				i.stamp = [3]fileStamp{}
			}
		}
		i.mu.Unlock()
	}
	return i.cur.Load()
}

func (i *Identity) stamps() (out [3]fileStamp, err error) {
	for n, f := range []string{i.certFile, i.keyFile, i.caFile} {
		st, err := os.Stat(f)
		if err != nil {
			return out, err
		}
		out[n] = fileStamp{mod: st.ModTime(), size: st.Size()}
	}
	return out, nil
}

// read loads the files; the caller holds mu.
func (i *Identity) read() error {
	m, stamp, err := i.readFiles()
	if err != nil {
		i.lastErr.Store(err)
		return err
	}
	i.cur.Store(m)
	i.stamp = stamp
	i.lastErr.Store(nil)
	return nil
}

func (i *Identity) readFiles() (*material, [3]fileStamp, *Error) {
	// Stamps are taken before the bytes: a change in between is seen next time.
	stamp, err := i.stamps()
	if err != nil {
		return nil, stamp, ErrFiles.with(err, "a file cannot be read")
	}
	var data [3][]byte
	for n, f := range []string{i.certFile, i.keyFile, i.caFile} {
		if data[n], err = os.ReadFile(f); err != nil {
			return nil, stamp, ErrFiles.with(err, "a file cannot be read")
		}
	}
	m, perr := parse(data[0], data[1], data[2])
	if perr != nil {
		return nil, stamp, perr
	}
	if old := i.cur.Load(); old != nil && old.subject != m.subject {
		return nil, stamp, ErrID.with(nil, "%s now names %s; this process is %s", i.certFile, m.subject, old.subject)
	}
	return m, stamp, nil
}

func parse(certPEM, keyPEM, caPEM []byte) (*material, *Error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, ErrFiles.with(err, "certificate and key")
	}
	if _, ok := pair.PrivateKey.(ed25519.PrivateKey); !ok {
		return nil, ErrFiles.with(nil, "the key is of type %T; Ed25519 is expected", pair.PrivateKey)
	}
	s, err := SubjectOf(pair.Leaf)
	if err != nil {
		return nil, ErrSAN.with(err, "own certificate")
	}
	cas, err := decodeCerts(caPEM)
	if err != nil {
		return nil, ErrFiles.with(err, "the authorities")
	}
	roots := x509.NewCertPool()
	for _, c := range cas {
		roots.AddCert(c)
	}
	return &material{cert: pair, subject: s, roots: roots}, nil
}
