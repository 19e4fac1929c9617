// Sockets on loopback, for what needs the real transport.

package runnertest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
)

// Endpoint opens a socket on loopback for a subject, which accepts one kind of
// others ("" = none) and all that they ask. It is closed when the test ends, if not before.
func Endpoint(t testing.TB, ca *pki.Authority, s pki.Subject, accept pki.Kind) *transport.Endpoint {
	t.Helper()
	issued, err := ca.Issue(s, pki.Validity{})
	require.NoError(t, err)
	id, err := issued.Identity(ca)
	require.NoError(t, err)
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	incarnation := cluster.NewIncarnationID()
	e, err := transport.Listen(transport.Config{
		Conn: conn, Identity: id, Accept: accept,
		Hello: func() transport.Hello {
			return transport.Hello{Cluster: s.Cluster, ID: s.ID, Incarnation: incarnation, ProtocolMin: 1, ProtocolMax: 1}
		},
		Admit: func(transport.Peer, transport.Family, string) error { return nil },
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return e
}
