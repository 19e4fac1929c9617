// Endpoint: one UDP socket, one identity, every message family.

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/forgeyard/forgeyard/transport/tasks"
	"github.com/quic-go/quic-go"
)

// Peer is who is at the other end of a connection: certificate first, its own word second.
type Peer struct {
	Subject     pki.Subject
	Certificate [32]byte // SHA-256 of the certificate
	Hello       Hello
	Remote      net.Addr
}

// Node is the peer's node id; zero unless it is a node.
func (p Peer) Node() fsm.NodeID {
	id, _ := p.Subject.NodeID()
	return id
}

// Config describes an endpoint.
type Config struct {
	Conn     net.PacketConn // the endpoint's from Listen on: Close closes it
	Identity *pki.Identity
	// Accept is the only kind of peer that may connect to this socket; empty for
	// a socket that only dials.
	Accept pki.Kind
	// Hello is what this side says of itself now.
	Hello func() Hello
	// Admit decides whether a peer may use a family, on every incoming call and
	// stream; method is empty for streams. Family and kind of the peer already
	// fit. An *Error keeps its reason; CodeRemoved also closes the connection.
	// Needed unless Accept is empty.
	Admit func(p Peer, fam Family, method string) error
	// Rejected hears why this side refused a peer, or a peer this side. It must not block.
	Rejected func(remote net.Addr, peer pki.Subject, err *Error)
	// Echo answers whoever asks the port which process holds it (transport/echo).
	Echo   bool
	Limits Limits
	Logger *slog.Logger
	Now    func() time.Time // for the validity of certificates
}

// Endpoint dials and accepts over one socket. All methods are safe for concurrent use.
type Endpoint struct {
	cfg    Config
	limits Limits
	codec  *codec
	log    *slog.Logger

	tr   *quic.Transport
	ln   *quic.Listener // nil when the socket only dials
	quic *quic.Config

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	tasks  tasks.Group
	closed sync.Once

	gate     gate
	peers    registry
	dials    dialer
	refusals refusalLog
	routes   routes
	resolver atomic.Pointer[func(fsm.NodeID) (string, bool)]
}

// alpn names the protocol in the TLS handshake; a public client does not know it (§212).
const alpn = "forgeyard/1"

// Listen starts an endpoint on cfg.Conn. On an error the socket stays the caller's.
func Listen(cfg Config) (*Endpoint, error) {
	if cfg.Conn == nil || cfg.Identity == nil || cfg.Hello == nil {
		return nil, errors.New("transport: Conn, Identity and Hello are needed")
	}
	if cfg.Accept != "" && cfg.Admit == nil {
		return nil, errors.New("transport: a socket that accepts peers needs Admit")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	codec, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("transport: codec: %w", err)
	}
	limits := cfg.Limits.withDefaults(withAgents(cfg.Accept, cfg.Identity.Subject().Kind))
	e := &Endpoint{
		cfg: cfg, limits: limits, codec: codec, log: cfg.Logger,
		quic: &quic.Config{
			HandshakeIdleTimeout:  limits.Handshake,
			MaxIdleTimeout:        limits.Idle,
			KeepAlivePeriod:       limits.KeepAlive,
			MaxIncomingStreams:    limits.Streams,
			MaxIncomingUniStreams: -1,
		},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.peers.init(limits)
	e.dials.init(limits)
	e.routes.init()
	// The key outlives the process, so that a peer of the previous one is told
	// at once. Each socket has its own: one must not reset the other's connections.
	key := quic.StatelessResetKey(cfg.Identity.ResetKey("accept " + string(cfg.Accept)))
	e.tr = &quic.Transport{
		Conn:               cfg.Conn,
		ConnectionIDLength: 8,
		StatelessResetKey:  &key,
		ConnContext:        e.enter,
		// Under pressure a source must prove its address before it costs a handshake.
		VerifySourceAddress: func(net.Addr) bool { return e.gate.count() > limits.Handshakes/2 },
	}
	if cfg.Accept != "" {
		if e.ln, err = e.tr.Listen(e.serverTLS(), e.quic); err != nil {
			e.cancel()
			return nil, fmt.Errorf("transport: listen: %w", err)
		}
		e.tasks.Go(e.accept)
	}
	if cfg.Echo {
		e.tasks.Go(e.answerEchoes)
	}
	return e, nil
}

// Addr is the socket's local address.
func (e *Endpoint) Addr() net.Addr { return e.cfg.Conn.LocalAddr() }

// SetResolver sets where nodes are found. The endpoint that a node named in its
// last hello is used when the resolver knows none.
func (e *Endpoint) SetResolver(f func(fsm.NodeID) (addr string, ok bool)) { e.resolver.Store(&f) }

// CloseNode closes every connection of a node, telling it that it was removed and why (§215).
func (e *Endpoint) CloseNode(n fsm.NodeID, reason string) {
	for _, c := range e.peers.of(peerKey{pki.KindNode, n.String()}) {
		c.close(&Error{Code: CodeRemoved, Message: reason})
	}
}

// Close tells all peers, closes the socket and returns when every goroutine of the endpoint has ended.
func (e *Endpoint) Close() error {
	var err error
	e.closed.Do(func() {
		e.tasks.Refuse()
		e.cancel()
		for _, c := range e.peers.all() {
			c.close(&Error{Code: CodeShutdown})
		}
		if e.ln != nil {
			err = e.ln.Close()
		}
		err = errors.Join(err, e.tr.Close(), e.cfg.Conn.Close())
	})
	e.tasks.Wait()
	return err
}

// reject reports a refusal, whichever side it came from, and closes the connection.
func (e *Endpoint) reject(qc *quic.Conn, peer pki.Subject, err *Error) {
	e.rejected(qc.RemoteAddr(), peer, err)
	_ = qc.CloseWithError(quic.ApplicationErrorCode(err.Code), clip(err.Message)) // it always returns nil
}

func (e *Endpoint) rejected(remote net.Addr, peer pki.Subject, err *Error) {
	if e.ctx.Err() != nil {
		return
	}
	if more, ok := e.refusals.note(refusalKey{peer, err.Code, err.Remote}, time.Now()); ok {
		e.log.Warn("peer refused", "remote", remote, "peer", peer, "by_peer", err.Remote, "error", err, "unsaid_before", more)
	}
	if e.cfg.Rejected != nil {
		e.cfg.Rejected(remote, peer, err)
	}
}

func (e *Endpoint) baseTLS() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		SessionTicketsDisabled: true, // a resumed session would skip the judgement of a fresh chain
		Time:                   e.cfg.Now,
	}
}

// serverTLS demands a certificate and proof of its key. What the certificate
// says is judged right after the handshake, before a byte of the peer is read:
// a TLS alert could not tell the peer why it was refused (see DESIGN.md).
func (e *Endpoint) serverTLS() *tls.Config {
	c := e.baseTLS()
	c.GetCertificate = e.cfg.Identity.GetCertificate
	c.ClientAuth = tls.RequireAnyClientCert
	return c
}

// clientTLS skips the library's check, which is about host names; judge does the real one.
func (e *Endpoint) clientTLS() *tls.Config {
	c := e.baseTLS()
	c.GetClientCertificate = e.cfg.Identity.GetClientCertificate
	c.InsecureSkipVerify = true
	return c
}

// judge decides who the peer is from its certificate alone.
func (e *Endpoint) judge(qc *quic.Conn, want pki.Expect) (Peer, time.Time, *Error) {
	chain := qc.ConnectionState().TLS.PeerCertificates
	want.Now = e.cfg.Now()
	s, err := e.cfg.Identity.Verify(chain, want)
	if err != nil {
		var out *Error
		errors.As(classify(err), &out)
		return Peer{Subject: s, Remote: qc.RemoteAddr()}, time.Time{}, out
	}
	return Peer{Subject: s, Certificate: pki.Fingerprint(chain[0]), Remote: qc.RemoteAddr()}, chain[0].NotAfter, nil
}
