// A peer that keeps no rules: QUIC by hand, with whatever certificate it is given.

package clitest

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// helloFamily marks the first frame of a connection.
const helloFamily = 0x48

// rawBound is how long the daemon may take to answer or to close.
const rawBound = 20 * time.Second

// raw is a QUIC connection without any of the product's rules.
type raw struct {
	*quic.Conn
	t testing.TB
}

// pair is a certificate for raw use.
func pair(t testing.TB, issued *pki.Issued) tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair(issued.CertPEM, issued.KeyPEM)
	require.NoError(t, err)
	return p
}

// dial connects; the connection ends with the test.
func dial(t testing.TB, addr string, certs ...tls.Certificate) *raw {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", addr)
	require.NoError(t, err)
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	tr := &quic.Transport{Conn: conn}
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, conn.Close())
	})
	ctx, cancel := context.WithTimeout(t.Context(), rawBound)
	defer cancel()
	c, err := tr.Dial(ctx, to, &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"forgeyard/1"}, Certificates: certs,
	}, &quic.Config{MaxIdleTimeout: rawBound})
	require.NoError(t, err)
	return &raw{c, t}
}

// frame writes a frame by hand.
func frame(family, version byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{family, version}, uint32(len(payload)))
	return append(b, payload...)
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	b, err := cbor.Marshal(v)
	require.NoError(t, err)
	return b
}

// hello is what an honest holder of the certificate says.
func hello(s pki.Subject) transport.Hello {
	return transport.Hello{Cluster: s.Cluster, ID: s.ID, Incarnation: fsm.IncarnationID(ulid.Make()), ProtocolMin: 1, ProtocolMax: 1}
}

// greet sends the first exchange and waits for its answer, or for the end of the connection.
func (c *raw) greet(h transport.Hello) error {
	return c.send(frame(helloFamily, 1, encoded(c.t, map[int]any{1: h})))
}

// send opens a stream, writes bytes, ends it, and returns how the other side of it ends: nil when an answer came.
func (c *raw) send(b []byte) error {
	_, err := c.ask(b)
	return err
}

// ask is send that returns the payload of the frame that came back.
func (c *raw) ask(b []byte) (payload []byte, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), rawBound)
	defer cancel()
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	// The daemon may answer and stop listening before this side has ended its
	// half. Then its answer says more than the failed end.
	_, sendErr := s.Write(b)
	sendErr = errors.Join(sendErr, s.Close())
	if err := s.SetReadDeadline(time.Now().Add(rawBound)); err != nil {
		return nil, err
	}
	const header = 6
	answer, err := io.ReadAll(s)
	if len(answer) <= header {
		return nil, errors.Join(io.ErrUnexpectedEOF, err, sendErr)
	}
	return answer[header:], nil
}

// call asks for a method and returns the first byte of the answer (0 done, 1 an
// error of the handler, 2 a refusal) and the numbered fields that follow it.
func (c *raw) call(family transport.Family, method string, body any) (status byte, fields map[int]any) {
	c.t.Helper()
	answer, err := c.ask(append(frame(byte(family), 1, encoded(c.t, map[int]any{1: true, 2: method})), frame(byte(family), 1, encoded(c.t, body))...))
	require.NoError(c.t, err)
	if len(answer) > 1 {
		require.NoError(c.t, cbor.Unmarshal(answer[1:], &fields))
	}
	return answer[0], fields
}

// reason is with what the daemon ended a stream or connection; false when it did not.
func reason(err error) (transport.Code, bool) {
	var stream *quic.StreamError
	var conn *quic.ApplicationError
	switch {
	case errors.As(err, &stream):
		return transport.Code(stream.ErrorCode), stream.Remote
	case errors.As(err, &conn):
		return transport.Code(conn.ErrorCode), conn.Remote
	}
	return 0, false
}

// closedWith waits for the daemon to close the connection.
func (c *raw) closedWith() transport.Code {
	c.t.Helper()
	select {
	case <-c.Context().Done():
	case <-time.After(rawBound):
		require.FailNow(c.t, "the connection stays open")
	}
	code, remote := reason(context.Cause(c.Context()))
	require.True(c.t, remote, "%v", context.Cause(c.Context()))
	return code
}
