// Who is refused, and that both sides learn why.

package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/transport"
	"github.com/forgeyard/forgeyard/transport/pki"
	"github.com/oklog/ulid/v2"
	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
)

// TestWrongCertificateIsRefusedAloud covers every certificate that must not
// come in: the server names its reason, and the client reads the same one.
func TestWrongCertificateIsRefusedAloud(t *testing.T) {
	f := newForger(t)
	stranger := newForger(t)
	uri := func(kind pki.Kind) string {
		return pki.Subject{Cluster: f.Cluster(), Kind: kind, ID: nodeID().String()}.String()
	}
	clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	cases := map[string]struct {
		cert *tls.Certificate
		want transport.Code
		says string
	}{
		"agent":                     {f.honest(t, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}), transport.CodeWrongKind, "kind agent"},
		"admin":                     {f.honest(t, pki.Subject{Kind: pki.KindAdmin, ID: "alice"}), transport.CodeWrongKind, "kind admin"},
		"other cluster and its CA":  {stranger.honest(t, pki.Node(stranger.Cluster(), nodeID())), transport.CodeWrongCluster, stranger.Cluster().String()},
		"other cluster, our CA":     {f.forge(t, []string{pki.Node(fsm.ClusterID(ulid.Make()), nodeID()).String()}, nil), transport.CodeWrongCluster, "this is cluster"},
		"our cluster, a strange CA": {stranger.forge(t, []string{uri(pki.KindNode)}, nil), transport.CodeAuthority, "not signed"},
		"expired":                   {f.forge(t, []string{uri(pki.KindNode)}, func(c *x509.Certificate) { c.NotAfter = time.Unix(1000, 0) }), transport.CodeExpired, "1970-01-01"},
		"not yet valid":             {f.forge(t, []string{uri(pki.KindNode)}, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour / 2) }), transport.CodeExpired, "valid from"},
		"two names":                 {f.forge(t, []string{uri(pki.KindNode), uri(pki.KindNode)}, nil), transport.CodeBadName, "2 URI names"},
		"no name":                   {f.forge(t, nil, nil), transport.CodeBadName, "0 URI names"},
		"a host name beside it":     {f.forge(t, []string{uri(pki.KindNode)}, func(c *x509.Certificate) { c.DNSNames = []string{"db"} }), transport.CodeBadName, "1 others"},
		"server purpose only":       {f.forge(t, []string{uri(pki.KindNode)}, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), transport.CodeWrongPurpose, "this use"},
		"unknown kind":              {f.forge(t, []string{uri("robot")}, clientOnly), transport.CodeBadName, "cannot be read"},
	}
	server := listen(t, options{identity: identity(t, f.Authority, pki.Node(f.Cluster(), nodeID())), accept: pki.KindNode})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			raw, err := dialRaw(t, server.Addr(), c.cert)
			require.NoError(t, err)
			code, text := raw.closedWith()
			require.Equal(t, c.want, code)
			require.Contains(t, text, c.says)
			mine := server.refused.next(t)
			require.Equal(t, c.want, mine.Code)
			require.False(t, mine.Remote)
			require.Contains(t, mine.Message, c.says)
		})
	}
}

func TestMTLSMandatory(t *testing.T) {
	f := newForger(t)
	server := node(t, f.Authority)
	raw, err := dialRaw(t, server.Addr(), nil)
	if err == nil {
		// TLS 1.3: the client's handshake may be over before the server has looked.
		<-raw.Context().Done()
		err = context.Cause(raw.Context())
	}
	var tr *quic.TransportError
	require.ErrorAs(t, err, &tr)
	require.True(t, tr.Remote)
	require.Equal(t, quic.TransportErrorCode(0x174), tr.ErrorCode, "certificate_required")
	require.Equal(t, transport.CodeNoCertificate, server.refused.next(t).Code)
}

// TestInternalListenerOnly: a public client does not even get a connection (§212).
func TestInternalListenerOnly(t *testing.T) {
	f := newForger(t)
	server := node(t, f.Authority)
	_, err := dialRaw(t, server.Addr(), f.honest(t, pki.Node(f.Cluster(), nodeID())), "h3")
	var tr *quic.TransportError
	require.ErrorAs(t, err, &tr)
	require.Equal(t, quic.TransportErrorCode(0x178), tr.ErrorCode, "no_application_protocol")
}

// TestClientRefusesTheServer covers the other direction: the dialling side
// names its reason and the dialled side reads the same one.
func TestClientRefusesTheServer(t *testing.T) {
	ca, other := authority(t), authority(t)
	expired := func() *pki.Identity {
		i, err := ca.Issue(pki.Node(ca.Cluster(), nodeID()), pki.Validity{NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1000, 0)})
		require.NoError(t, err)
		id, err := i.Identity(ca)
		require.NoError(t, err)
		return id
	}()
	cases := map[string]struct {
		server *pki.Identity
		want   transport.Code
	}{
		"agent":         {identity(t, ca, pki.Subject{Kind: pki.KindAgent, ID: "agent-1"}), transport.CodeWrongPurpose},
		"other cluster": {identity(t, other, pki.Node(other.Cluster(), nodeID())), transport.CodeWrongCluster},
		"expired":       {expired, transport.CodeExpired},
		"another node":  {identity(t, ca, pki.Node(ca.Cluster(), nodeID())), transport.CodeIDMismatch},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := listen(t, options{identity: c.server, accept: pki.KindNode})
			client := node(t, ca)
			wanted := nodeID()
			client.SetResolver(func(fsm.NodeID) (string, bool) { return server.Addr().String(), true })
			err := client.Call(soon(t), wanted, transport.FamilyControl, "ping", nil, nil)
			require.ErrorIs(t, err, &transport.Error{Code: c.want})
			require.Equal(t, c.want, client.refused.next(t).Code)
			theirs := server.refused.next(t)
			require.Equal(t, c.want, theirs.Code)
			if name != "other cluster" { // where each side refuses the other by itself
				require.True(t, theirs.Remote)
			}
		})
	}
}

// TestHelloIsJudged: everything the hello says is compared before a connection counts as one.
func TestHelloIsJudged(t *testing.T) {
	ca := authority(t)
	cases := map[string]struct {
		change func(*transport.Hello)
		want   transport.Code
	}{
		"other cluster":     {func(h *transport.Hello) { h.Cluster = fsm.ClusterID(ulid.Make()) }, transport.CodeWrongCluster},
		"another id":        {func(h *transport.Hello) { h.ID = nodeID().String() }, transport.CodeIDMismatch},
		"older generation":  {func(h *transport.Hello) { h.Generation = 2 }, transport.CodeGeneration},
		"too new":           {func(h *transport.Hello) { h.ProtocolMin, h.ProtocolMax = 2, 3 }, transport.CodeProtocol},
		"inverted versions": {func(h *transport.Hello) { h.ProtocolMin, h.ProtocolMax = 3, 1 }, transport.CodeMalformed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server := node(t, ca)
			client := listen(t, options{identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode, hello: c.change})
			knows(client, server)
			err := client.Call(soon(t), server.id, transport.FamilyControl, "ping", nil, nil)
			var e *transport.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.want, e.Code)
			require.True(t, e.Remote)
			require.False(t, e.OutcomeUnknown)
			require.Equal(t, c.want, server.refused.next(t).Code)
		})
	}
}

func TestJoinerOfUnknownGenerationIsGreeted(t *testing.T) {
	ca := authority(t)
	server := node(t, ca)
	server.Handle(transport.FamilyControl, "echo", echo)
	joiner := listen(t, options{identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode, hello: func(h *transport.Hello) { h.Generation = 0 }})
	peer, err := joiner.CallAddr(soon(t), server.Addr().String(), transport.FamilyControl, "echo", 1, nil)
	require.NoError(t, err)
	require.Equal(t, server.id, peer.Node())
}

// TestFamilySeparation: an agent and a node share the agent family and nothing else.
func TestFamilySeparation(t *testing.T) {
	f := newForger(t)
	subject := pki.Subject{Cluster: f.Cluster(), Kind: pki.KindAgent, ID: "agent-1"}
	cert := f.honest(t, subject)
	for _, fam := range []transport.Family{transport.FamilyRaft, transport.FamilyControl, transport.FamilyDeploy} {
		t.Run("agent on "+fam.String(), func(t *testing.T) {
			server := listen(t, options{identity: identity(t, f.Authority, pki.Node(f.Cluster(), nodeID())), accept: pki.KindAgent})
			raw, err := dialRaw(t, server.Addr(), cert)
			require.NoError(t, err)
			require.NoError(t, raw.hello(helloOf(subject)))
			_ = raw.send(frame(byte(fam), 1, cborOf(t, map[int]any{1: true, 2: "ping"})))
			code, text := raw.closedWith()
			require.Equal(t, transport.CodeWrongFamily, code)
			require.Contains(t, text, "kind agent")
			require.Equal(t, transport.CodeWrongFamily, server.refused.next(t).Code)
		})
	}

	t.Run("node on the agents' socket", func(t *testing.T) {
		server := listen(t, options{identity: identity(t, f.Authority, pki.Node(f.Cluster(), nodeID())), accept: pki.KindAgent})
		n := node(t, f.Authority)
		_, err := n.CallAddr(soon(t), server.Addr().String(), transport.FamilyControl, "ping", nil, nil)
		require.ErrorIs(t, err, &transport.Error{Code: transport.CodeWrongKind})
		require.Equal(t, transport.CodeWrongKind, server.refused.next(t).Code)
	})

	t.Run("agent family between nodes", func(t *testing.T) {
		a, b := node(t, f.Authority), node(t, f.Authority)
		knows(a, b)
		err := a.Call(soon(t), b.id, transport.FamilyAgent, "ping", nil, nil)
		require.ErrorIs(t, err, &transport.Error{Code: transport.CodeWrongFamily})
	})

	t.Run("agent on its own family", func(t *testing.T) {
		server := listen(t, options{identity: identity(t, f.Authority, pki.Node(f.Cluster(), nodeID())), accept: pki.KindAgent})
		server.Handle(transport.FamilyAgent, "echo", echo)
		agent := listen(t, options{identity: identity(t, f.Authority, pki.Subject{Kind: pki.KindAgent, ID: "agent-2"})})
		peer, err := agent.CallAddr(soon(t), server.Addr().String(), transport.FamilyAgent, "echo", 1, nil)
		require.NoError(t, err)
		require.Equal(t, pki.KindNode, peer.Subject.Kind)
	})
}

// TestAdmission: the policy decides per method, its reason reaches the caller, and a removed node loses its connection.
func TestAdmission(t *testing.T) {
	ca := authority(t)
	removed := make(chan struct{})
	server := listen(t, options{
		identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), accept: pki.KindNode,
		admit: func(_ transport.Peer, fam transport.Family, method string) error {
			select {
			case <-removed:
				return transport.Refuse(transport.CodeRemoved, "removed by the test")
			default:
			}
			if fam == transport.FamilyControl && method == "join" {
				return nil
			}
			return transport.Refuse(transport.CodeNotMember, "only join is open")
		},
	})
	server.Handle(transport.FamilyControl, "join", echo)
	server.Handle(transport.FamilyControl, "propose", echo)
	server.HandleStream(transport.FamilyRaft, func(context.Context, transport.Peer, *transport.Stream) {})
	client := node(t, ca)
	knows(client, server)

	require.NoError(t, client.Call(soon(t), server.id, transport.FamilyControl, "join", 1, nil))
	err := client.Call(soon(t), server.id, transport.FamilyControl, "propose", 1, nil)
	var e *transport.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, transport.CodeNotMember, e.Code)
	require.Equal(t, "only join is open", e.Message)
	require.False(t, e.OutcomeUnknown)
	require.Equal(t, transport.CodeNotMember, server.refused.next(t).Code)
	_, err = client.OpenStream(soon(t), server.id, transport.FamilyRaft)
	require.ErrorIs(t, err, &transport.Error{Code: transport.CodeNotMember})
	require.Equal(t, transport.CodeNotMember, server.refused.next(t).Code)

	close(removed)
	err = client.Call(soon(t), server.id, transport.FamilyControl, "join", 1, nil)
	require.ErrorIs(t, err, &transport.Error{Code: transport.CodeRemoved})
	require.Equal(t, transport.CodeRemoved, server.refused.next(t).Code)
	require.Equal(t, transport.CodeRemoved, client.refused.next(t).Code)
}

func TestCloseNodeTellsThePeer(t *testing.T) {
	ca := authority(t)
	server, client := node(t, ca), node(t, ca)
	knows(client, server)
	server.Handle(transport.FamilyControl, "echo", echo)
	entered := make(chan struct{})
	server.Handle(transport.FamilyControl, "hang", func(ctx context.Context, _ transport.Peer, _ []byte) (any, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	done := make(chan error, 1)
	go func() { done <- client.Call(soon(t), server.id, transport.FamilyControl, "hang", 1, nil) }()
	<-entered
	server.CloseNode(client.id, "removed at index 7")
	err := <-done
	var e *transport.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, transport.CodeRemoved, e.Code)
	require.Equal(t, "removed at index 7", e.Message)
	require.True(t, e.Remote)
	require.True(t, e.OutcomeUnknown, "the handler was running")
	require.Equal(t, transport.CodeRemoved, client.refused.next(t).Code)
}

func TestListenNeedsAPolicy(t *testing.T) {
	ca := authority(t)
	conn := loopback(t)
	defer func() { require.NoError(t, conn.(*net.UDPConn).Close()) }()
	_, err := transport.Listen(transport.Config{
		Conn: conn, Identity: identity(t, ca, pki.Node(ca.Cluster(), nodeID())), Accept: pki.KindNode,
		Hello: func() transport.Hello { return transport.Hello{} },
	})
	require.ErrorContains(t, err, "Admit")
}
